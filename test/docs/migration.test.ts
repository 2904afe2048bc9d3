/** What a team reads before it moves here or asks a question: complete, and the same in every document. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { loadConfig } from '../../src/config/config.js';
import { configTable } from '../../src/config/table.js';

const read = (path: string) => readFileSync(path, 'utf8');
const helm = read('deploy/helm/smart-router/README.md');
const faq = read('docs/faq.md');

describe('the guide from the Go router', () => {
  const rows = read('docs/migration.md')
    .split('\n')
    .filter((line) => /^\| (?!the Go router|the work order)/.test(line))
    .map((line) => line.split('|').slice(1, 3));

  it.each([
    [/best-effort lock and a rollback/, /one atomic step/],
    [/drain is two steps/, /no race/],
    [/loses the load of a shared pod/, /number of live calls/],
    [/leaked on a shared pod/, /its own lease/],
    [/over `LEASE_TTL`/, /renewed or reported/],
    [/drain mark always lasts `DRAINING_TTL`/, /as long as a caller waits/],
    [/unknown pod is 500/, /404 `pod_not_found`/],
    [/no preStop/, /drain with `wait`/],
    [/not ready or terminating is removed/, /keeps those it has/],
    [/wrong selector/, /removal brake.*from four missing pods on/],
    [/merchant pools under tier names/, /index of their own/],
    [/bring a deleted pod back/, /removal is atomic/],
    [/`assigned` set of a deleted tier/, /cleans up/],
    [/`active_calls` drifts/, /read from the store/],
    [/backoff of a restarted loop/, /resets after a minute/],
    [/loses leadership ends itself/, /`LEADER_LOSS=exit`.*the chart sets `follow`/],
    [/Lease is in `voice-system`/, /in `NAMESPACE`/],
    [/no authentication/, /keys, provider signatures/],
    [/listens on all addresses/, /`127\.0\.0\.1`/],
    [/`TIER_CONFIG` counts at every start/, /empty Redis only/],
    [/stuck by its age only/, /heartbeat and token/],
    [/queued in Redis/, /claiming pauses/],
  ])('has the difference %s', (before, here) => {
    expect(rows.filter(([left = '', right = '']) => before.test(left) && here.test(right))).toHaveLength(1);
  });

  it('states the defaults that the configuration has', () => {
    const defaults = loadConfig({ REDIS_URL: 'embedded' });
    expect(defaults).toMatchObject({ leaderLoss: 'exit', httpHost: '127.0.0.1' });
    expect(read('deploy/helm/smart-router/values.yaml')).toMatch(/^ +onLoss: follow$/m);
  });
});

describe('the questions', () => {
  const answer = (question: string) =>
    faq.split(/^(?=\*\*)/m).find((part) => part.startsWith(`**${question}`)) ?? '';
  const secondsOf = (text: string) =>
    [...text.matchAll(/([\d.]+) s\b/g)].map(([, seconds]) => Number(seconds));
  const lastCell = (text: string, start: string) =>
    text
      .split('\n')
      .find((line) => line.startsWith(`| ${start}`))
      ?.split('|')
      .at(-2) ?? '';

  it('answer how to scale agents with the metrics and the example of the chart', () => {
    const text = answer('How do I scale the agents automatically?');
    const metrics = text.match(/smart_router_\w+/g) ?? [];
    expect(metrics).toHaveLength(3);
    const keda = read('deploy/examples/agents-keda.yaml');
    for (const metric of metrics) {
      expect(keda).toContain(metric);
      expect(helm).toContain(metric);
    }
    expect(text).toContain('autoscaling.enabled');
  });

  it('answer how to upgrade without Helm with a probe and a time that the router has', () => {
    const text = answer('How do I upgrade without Helm?');
    const fallback = configTable.find(({ name }) => name === 'SHUTDOWN_TIMEOUT')?.fallback;
    expect(text).toContain(`(\`SHUTDOWN_TIMEOUT\`, ${String(fallback).replace('s', ' s')})`);
    expect(read('docs/api.md')).toContain('GET /api/v1/ready');
    expect(text).toContain('GET /api/v1/ready');
  });

  it('answer how long a failover takes as the chart does', () => {
    const text = answer('How many seconds does a failover take?');
    const [died, stopped] = secondsOf(lastCell(helm, 'the leader dies'));
    expect(secondsOf(lastCell(text, 'the leader, by a clean stop; by a crash'))).toEqual([stopped, died]);
    expect(secondsOf(lastCell(text, 'the Kubernetes API'))).toEqual(
      secondsOf(lastCell(helm, 'the Kubernetes API is down')),
    );
    expect(secondsOf(lastCell(text, 'Redis, with all its content'))).toEqual(
      secondsOf(lastCell(helm, 'Redis loses everything')),
    );
    expect(lastCell(text, 'the Redis master, with Sentinel')).toContain('5 s more to reconnect');
    expect(lastCell(helm, 'Redis does not answer')).toContain('+ 5 s');
    expect(secondsOf(answer('What happens when the leader dies?'))).toEqual([died]);
  });

  it('answer how to back up merchants and tiers with commands that exist', () => {
    const text = answer('How do I back up merchants and tiers?');
    const cli = read('docs/cli.md');
    for (const command of ['merchants export', 'merchants import', 'tiers get', 'tiers set']) {
      expect(text).toContain(command);
      expect(cli).toMatch(new RegExp(`^#+ .*${command}`, 'm'));
    }
    expect(helm).toContain('`smart-router merchants export`');
  });

  it('name the calls a second of one router as the chart and the benchmarks do', () => {
    const [measured = ''] =
      /[\d,]+(?=\/s against [\d,]+\/s, rounds [\d.]+; a call is an allocate)/.exec(
        read('docs/benchmarks.md'),
      ) ?? [];
    const rounded = (Math.round(Number(measured.replace(',', '')) / 100) * 100).toLocaleString('en-US');
    for (const text of [answer('How many routers?'), helm])
      expect(text.replaceAll('\n', ' ')).toContain(`about ${rounded} calls`);
  });
});

describe('records in the documents of the chart', () => {
  it('run only where a workflow is named', () => {
    const section = /^\*\*Records\.\*\*.*?\n\n/ms.exec(helm)?.[0] ?? '';
    expect(section).toContain('`config.RECORDS_MODULE`');
    expect(section).toContain('`config.RECORDS_WORKFLOWS`');
  });
});

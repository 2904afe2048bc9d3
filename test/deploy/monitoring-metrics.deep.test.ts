/** A running router exports every metric and label that alerts and dashboards use. */
import type { Pool } from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { type Engine, embeddedValkey } from '../support/engines.js';
import { describeOnePostgres } from '../support/postgres.js';
import { addJob, jobOf, jobsTable, recordsModule } from '../support/records-module.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';
import { readText } from './manifests.js';
import { dashboards, expressions, rules } from './monitoring-files.js';
import { asked } from './promql.js';

/** Given by Prometheus to every series of a target. */
const targetLabels = ['job', 'namespace', 'instance'];
/** Written by Prometheus itself. */
const ofPrometheus: Record<string, string[]> = { up: [], ALERTS: ['alertname', 'alertstate'] };

let engine: Engine;
beforeAll(async () => {
  engine = await embeddedValkey();
});
afterAll(() => engine.stop());

const scrape = async (router: TestRouter) => (await router.get('/metrics')).text;
const seriesOf = (text: string, name: string) =>
  text.split('\n').filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`));
const lastRound = (text: string, loop: string) => {
  const [line] = seriesOf(text, `smart_router_loop_last_round_timestamp_seconds{loop="${loop}"}`);
  return line === undefined ? undefined : Number(line.split(' ')[1]);
};

describe('the PromQL reader', () => {
  it('finds metrics, labels and groupings, and skips functions and durations', () => {
    expect(
      asked(
        'sum by (job, le) (rate(a_total{x="1", y=~"b|c"}[5m])) > 2 * max(d_seconds offset 1h) unless on (z) e',
      ),
    ).toEqual({
      metrics: [
        {
          metric: 'a_total',
          matchers: [
            { label: 'x', operator: '=', value: '1' },
            { label: 'y', operator: '=~', value: 'b|c' },
          ],
        },
        { metric: 'd_seconds', matchers: [] },
        { metric: 'e', matchers: [] },
      ],
      groupings: ['job', 'le', 'z'],
    });
  });
});

describeOnePostgres('the metrics of alerts and dashboards', (postgres) => {
  let pool: Pool;
  beforeEach(async () => {
    pool = postgres.pool();
    await jobsTable(pool);
  });

  /** A router with calls and records behind it, once everything has happened that makes series. */
  async function usedRouter(): Promise<TestRouter> {
    const router = await startTestRouter(engine.url, {
      DATABASE_URL: postgres.url,
      RECORDS_MODULE: recordsModule(),
      AUDIT_INTERVAL: '200ms',
    });
    postgres.onEnd(() => router.stop());
    await router.post('/allocate', { call_sid: 'CA1' });
    await router.post('/release', { call_sid: 'CA1' });
    const job = await addJob(pool, 'ok');
    await until(async () => (await jobOf(pool, job)).status === 'Completed', 'a record is done');
    await until(async () => {
      const text = await scrape(router);
      const loops = ['sweep', 'reconcile', 'audit', 'records-fast-sweep', 'records-slow-sweep'];
      return (
        loops.every((loop) => lastRound(text, loop) !== undefined) &&
        seriesOf(text, 'smart_router_records_stuck').length > 0
      );
    }, 'all loops have had a round');
    return router;
  }

  it('are exported with their labels; gauges of alerts also while no alert fires', async () => {
    const router = await usedRouter();
    const text = await scrape(router);
    const types = new Map(
      [...text.matchAll(/^# TYPE (\w+) (\w+)$/gm)].flatMap(([, name = '', type = '']) =>
        type === 'histogram'
          ? ['_bucket', '_sum', '_count'].map((suffix) => [name + suffix, type] as const)
          : [[name, type] as const],
      ),
    );
    const labelsOf = (name: string): string[] => {
      if (name in ofPrometheus) return ofPrometheus[name] ?? [];
      const { registry } = router.context.metrics;
      const own = name.replace(/_(bucket|sum|count)$/, '');
      const metric = registry.getSingleMetric(types.get(name) === 'histogram' ? own : name);
      const { labelNames = [] } = (metric ?? {}) as { labelNames?: string[] };
      return name.endsWith('_bucket') ? [...labelNames, 'le'] : labelNames;
    };
    const problems = expressions.flatMap(([where, expression]) => {
      const { metrics, groupings } = asked(expression);
      const unknown = metrics.filter(({ metric }) => !types.has(metric) && !(metric in ofPrometheus));
      const wrong = metrics.flatMap(({ metric, matchers }) =>
        matchers
          .filter(({ label }) => ![...labelsOf(metric), ...targetLabels].includes(label))
          .map(({ label }) => `${metric}{${label}}`),
      );
      const possible = [...targetLabels, ...metrics.flatMap(({ metric }) => labelsOf(metric))];
      const lost = groupings.filter((label) => !possible.includes(label));
      return [...unknown.map(({ metric }) => metric), ...wrong, ...lost].map((what) => `${where}: ${what}`);
    });
    expect(problems).toEqual([]);
    const gauges = rules
      .flatMap(({ expr }) => asked(expr).metrics.map(({ metric }) => metric))
      .filter((metric) => types.get(metric) === 'gauge');
    expect(gauges.length).toBeGreaterThan(15);
    // It has a series only for pods that are set back.
    const absent = ['smart_router_pod_set_back'];
    expect(gauges.filter((name) => seriesOf(text, name).length === 0)).toEqual(absent);
  });

  it('have the loop records-look instead of the sweeps while the clean-up is off', async () => {
    const router = await startTestRouter(engine.url, {
      DATABASE_URL: postgres.url,
      RECORDS_MODULE: recordsModule(),
      ZOMBIE_CLEANUP_ENABLED: 'false',
    });
    postgres.onEnd(() => router.stop());
    const text = await until(async () => {
      const now = await scrape(router);
      return lastRound(now, 'records-look') !== undefined && now;
    }, 'a round of records-look');
    expect(lastRound(text, 'records-fast-sweep')).toBeUndefined();
  });
});

describe('label values in expressions', () => {
  it('are documented', () => {
    const text = readText('docs/metrics.md');
    const unknown = expressions.flatMap(([where, expression]) =>
      asked(expression)
        .metrics.filter(({ metric }) => metric.startsWith('smart_router_'))
        .flatMap(({ matchers }) => matchers)
        .filter(
          ({ label, operator, value }) =>
            !targetLabels.includes(label) && operator === '=' && !text.includes(`\`${value}\``),
        )
        .map(({ value }) => `${where}: ${value}`),
    );
    expect(unknown).toEqual([]);
  });

  it('the variables of the dashboards use a metric that every router has', () => {
    for (const [, { templating }] of dashboards)
      for (const { name, definition } of templating.list.slice(1))
        expect(definition).toBe(`label_values(smart_router_leader_status, ${name})`);
  });
});

describe('the last round of a loop', () => {
  const start = async (env: Record<string, string>) => {
    const router = await startTestRouter(engine.url, env);
    onTestFinished(() => router.stop());
    return router;
  };

  it('grows with every round', async () => {
    const router = await start({ REDIS_KEY_PREFIX: 'moving:' });
    const first = await until(async () => lastRound(await scrape(router), 'sweep'), 'a round is over');
    // Seconds, not milliseconds.
    expect(new Date(first * 1000).getUTCFullYear()).toBe(new Date().getUTCFullYear());
    await until(async () => (lastRound(await scrape(router), 'sweep') ?? 0) > first, 'another one is over');
  });

  it('exists only on the leader for the leader’s loops', async () => {
    const env = { REDIS_KEY_PREFIX: 'elected:', LEADER_ELECTION_ENABLED: 'true' };
    const leader = await start({ ...env, POD_NAME: 'first' });
    await until(async () => lastRound(await scrape(leader), 'sweep') !== undefined, 'the leader sweeps');
    const follower = await start({ ...env, POD_NAME: 'second' });
    const text = await until(async () => {
      const now = await scrape(follower);
      return lastRound(now, 'settings') !== undefined && now;
    }, 'the follower refreshes its settings');
    expect(lastRound(text, 'sweep')).toBeUndefined();
    expect(lastRound(text, 'reconcile')).toBeUndefined();
    expect(seriesOf(text, 'smart_router_leader_status')).toEqual(['smart_router_leader_status 0']);
  });

  it('does not change while the store does not answer', async () => {
    const router = await start({
      REDIS_KEY_PREFIX: 'paused:',
      REQUEST_TIMEOUT: '400ms',
      REDIS_COMMAND_TIMEOUT: '400ms',
    });
    await until(async () => lastRound(await scrape(router), 'sweep') !== undefined, 'a round is over');
    await engine.pause();
    try {
      const crashes = async () =>
        seriesOf(await scrape(router), 'smart_router_loop_restarts_total{loop="sweep"}');
      await until(async () => (await crashes()).length > 0, 'the sweep crashes');
      const before = lastRound(await scrape(router), 'sweep');
      const [count] = await crashes();
      await until(async () => (await crashes())[0] !== count, 'it crashes again');
      expect(lastRound(await scrape(router), 'sweep')).toBe(before);
    } finally {
      await engine.resume();
    }
  });
});

/** The chart's README names only files, values, variables, options and commands that exist. */
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { configTable } from '../../src/config/config.js';
import { chart, describeWith, only, parse, readText, root, run } from './manifests.js';

const text = readText('deploy/helm/smart-router/README.md');
const found = (pattern: RegExp) => [...text.matchAll(pattern)].map(([, part = '']) => part);

describe('the README of the chart', () => {
  it('links to existing files', () => {
    const links = found(/\]\(([^)#]+)/g);
    expect(links.length).toBeGreaterThan(8);
    expect(links.filter((link) => !existsSync(join(chart, link)))).toEqual([]);
  });

  it('names values that the chart has', () => {
    const schema = JSON.parse(readText('deploy/helm/smart-router/values.schema.json'));
    const tops = Object.keys(schema.properties).join('|');
    const values = found(new RegExp(`\`((?:${tops})(?:\\.[A-Za-z_]+)+)`, 'g'));
    expect(values.length).toBeGreaterThan(8);
    const has = (path: string) =>
      path.split('.').reduce((node, key) => node?.properties?.[key], schema) !== undefined;
    expect(values.filter((path) => !has(path))).toEqual([]);
  });

  it('names variables of the router or the hook', () => {
    const hook = readText('deploy/examples/drain-and-wait.mjs') + readText('deploy/nginx/voice-proxy.yaml');
    const known = configTable.map(({ name }) => name);
    const named = found(/`([A-Z]+(?:_[A-Z]+)+)`/g);
    expect(named.length).toBeGreaterThan(5);
    expect(named.filter((name) => !known.includes(name) && !hook.includes(name))).toEqual([]);
  });

  it('has the failover times of the other docs, within the jitter of the election', () => {
    const row = (file: string, start: string) =>
      readText(file)
        .split('\n')
        .find((line) => line.startsWith(`| ${start}`)) ?? '';
    const within = (line: string) =>
      [...(line.split('|').at(-2) ?? '').matchAll(/([\d.]+) s/g)].map(([, seconds]) => Number(seconds));
    const readme = 'deploy/helm/smart-router/README.md';
    const [died = 0, stopped = 0] = within(row(readme, 'the leader dies'));
    expect(within(row('ARCHITECTURE.md', 'the leader dies'))).toEqual([died, stopped]);
    expect(within(row('docs/operations.md', 'it dies'))).toEqual([died]);
    expect(within(row('docs/operations.md', 'clean stop'))).toEqual([stopped]);
    const [usually = 0, atMost] = within(row(readme, 'the Kubernetes API is down'));
    const [back, late] = within(row('docs/operations.md', 'the API server is down for all'));
    expect([atMost, late]).toEqual([died, died]);
    expect(back).toBeLessThanOrEqual(usually);
    expect(text.replaceAll('\n', ' ')).toContain(
      `${stopped} s after a clean stop, up to ${died} s after a death, and after an outage of the API usually under ${usually} s, up to ${died} s`,
    );
    expect(text).toContain(`another leads within ${stopped} s.`);
    const [durationSeconds, retrySeconds] = ['LEADER_ELECTION_DURATION', 'LEADER_ELECTION_RETRY_PERIOD'].map(
      (name) => Number.parseInt(String(configTable.find((field) => field.name === name)?.fallback), 10),
    ) as [number, number];
    expect(stopped).toBeGreaterThan(1.2 * retrySeconds);
    expect(died).toBeGreaterThan(durationSeconds + 1.2 * retrySeconds);
  });

  it('uses the command of the image', () => {
    const executed = found(/exec deploy(?:ment)?\/smart-router -- (\S+)/g);
    expect(executed.length).toBeGreaterThan(2);
    expect(executed.filter((program) => program !== 'smart-router')).toEqual([]);
    expect(text).toContain('kubectl -n voice exec deploy/smart-router -- smart-router status');
  });

  it('uses existing options of the roll script', () => {
    const help = readText('deploy/examples/roll-agents.sh');
    const [command = ''] = found(/^deploy\/examples\/roll-agents\.sh (.*)$/gm);
    const options = command.split(' ').filter((word) => word.startsWith('-'));
    expect(options.length).toBeGreaterThan(2);
    expect(options.filter((option) => !help.includes(`  ${option}`))).toEqual([]);
  });

  it('promises an alert for held pods that exists', () => {
    expect(text).toContain('`smart_router_removals_held` alerts');
    const [table = ''] = found(/Page on the first six:\n\n(.*?)\n\n/gs);
    const expressions = [...table.matchAll(/^\| `([^`]+)`/gm)].map(([, expression = '']) => expression);
    expect(expressions.slice(0, 6)).toContain('max(smart_router_removals_held) > 0');
  });

  it('has the waiting times of both hooks', () => {
    const hook = readText('deploy/examples/drain-and-wait.mjs');
    const [, unknown] = /'DRAIN_UNKNOWN_SECONDS', (\d+)/.exec(hook) ?? [];
    const [, report] = /unknownMs, (\d+)_000/.exec(hook) ?? [];
    expect(text).toContain(`\`DRAIN_UNKNOWN_SECONDS\` (${unknown}:`);
    expect(text.replaceAll('\n', ' ')).toContain(`"no calls" only ${report} s after the last "unknown"`);
    const sh = readText('deploy/examples/drain-and-wait.sh');
    expect(sh).toContain(`"\${DRAIN_UNKNOWN_SECONDS:-}" ${unknown}\n`);
    expect(sh).toContain(`report=${report}\n`);
  });

  it('names commands that the router has', () => {
    const cli = readText('docs/cli.md');
    const commands = found(/`smart-router ((?:[a-z]+ ?)+)/g).map((command) => command.trim());
    expect(commands.length).toBeGreaterThan(3);
    expect(commands.filter((command) => !cli.includes(`## \`${command}\``))).toEqual([]);
  });
});

describeWith('kubectl', 'the README of the chart', () => {
  it('has an overlay that sets the agents’ image', () => {
    const folder = mkdtempSync(join(tmpdir(), 'smart-router-readme-'));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const [overlay = ''] = found(/```yaml\n(# agents\/kustomization.yaml\n.*?)```/gs);
    cpSync(`${root}deploy`, join(folder, 'deploy'), { recursive: true });
    mkdirSync(join(folder, 'agents'));
    writeFileSync(join(folder, 'agents', 'kustomization.yaml'), overlay);
    const { stdout, stderr } = run('kubectl', 'kustomize', join(folder, 'agents'));
    expect(stderr).toBe('');
    const { version } = JSON.parse(readText('package.json'));
    const { containers, initContainers } = only(parse(stdout), 'StatefulSet').spec.template.spec;
    expect(containers[0].image).toBe('registry.your-company.example/voice/agent:1.0.0');
    expect(initContainers[0].image).toBe(`registry.your-company.example/voice/smart-router:${version}`);
  });
});

describeWith('helm', 'the README of the chart', () => {
  it('has values that can be installed', () => {
    const folder = mkdtempSync(join(tmpdir(), 'smart-router-readme-'));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const [values = ''] = found(/```yaml\n(image:.*?)```/gs);
    writeFileSync(join(folder, 'production.yaml'), values);
    const args = ['-n', 'voice', '-f', join(folder, 'production.yaml')];
    const { stdout, stderr } = run('helm', 'template', 'smart-router', chart, ...args);
    expect(stderr).toBe('');
    // The names that the README's commands use.
    const manifests = parse(stdout);
    only(manifests, 'Deployment', 'smart-router');
    only(manifests, 'Service', 'smart-router');
    expect(stdout).toContain('smart-router-leader');
  });
});

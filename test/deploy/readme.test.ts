/** The chart's README says nothing that does not exist. */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { configTable } from '../../src/config.js';
import { chart, describeWith, only, parse, readText, run } from './manifests.js';

const text = readText('deploy/helm/smart-router/README.md');
const found = (pattern: RegExp) => [...text.matchAll(pattern)].map(([, part = '']) => part);

describe('the README of the chart', () => {
  it('links to files that are there', () => {
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

  it('names variables that the router or the hook knows', () => {
    const hook = readText('deploy/examples/drain-and-wait.mjs') + readText('deploy/nginx/voice-proxy.yaml');
    const known = configTable.map(({ name }) => name);
    const named = found(/`([A-Z]+(?:_[A-Z]+)+)`/g);
    expect(named.length).toBeGreaterThan(5);
    expect(named.filter((name) => !known.includes(name) && !hook.includes(name))).toEqual([]);
  });

  it('names commands that the router has', () => {
    const cli = readText('docs/cli.md');
    const commands = found(/`smart-router ((?:[a-z]+ ?)+)/g).map((command) => command.trim());
    expect(commands.length).toBeGreaterThan(3);
    expect(commands.filter((command) => !cli.includes(`## \`${command}\``))).toEqual([]);
  });
});

describeWith('helm', 'the README of the chart', () => {
  it('shows values that can be installed', () => {
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

/** The shipped rules and dashboards in a real Prometheus that scrapes a real router. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Engine, findOnPath, setupReason, startPreferred } from '../support/engines.js';
import { freePorts } from '../support/ports.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';
import { root } from './manifests.js';
import { expressions, rules, rulesPath } from './monitoring-files.js';
import { withoutVariables } from './promql.js';

const prometheus = findOnPath('prometheus');
const suite = prometheus === undefined ? describe.skip : describe;
const reason = prometheus === undefined ? ` [prometheus is not on PATH${setupReason('prometheus')}]` : '';

interface LoadedRule {
  name: string;
  health: string;
  lastError?: string;
}

interface Alert {
  state: string;
  labels: Record<string, string>;
  annotations: Record<string, string>;
}

suite(`a Prometheus with the shipped rules${reason}`, () => {
  const folder = mkdtempSync(join(tmpdir(), 'smart-router-prometheus-'));
  let engine: Engine;
  let router: TestRouter;
  let server: ChildProcess;
  let port: number;

  // biome-ignore lint/suspicious/noExplicitAny: each of its answers has a shape of its own.
  const ask = async (path: string): Promise<any> => {
    const answer = (await (await fetch(`http://127.0.0.1:${port}/api/v1/${path}`)).json()) as {
      status: string;
      data: unknown;
      error?: string;
    };
    if (answer.status !== 'success') throw new Error(answer.error);
    return answer.data;
  };
  const query = async (expression: string): Promise<{ value: [number, string] }[]> =>
    (await ask(`query?query=${encodeURIComponent(withoutVariables(expression))}`)).result;
  const firing = async (): Promise<Alert[]> =>
    (await ask('alerts')).alerts.filter(({ state }: Alert) => state === 'firing');

  beforeAll(async () => {
    engine = await startPreferred();
    router = await startTestRouter(engine.url);
    [port = 0] = await freePorts(1);
    const targets = [{ targets: [new URL(router.url).host] }];
    const config = {
      global: { scrape_interval: '1s', scrape_timeout: '1s', evaluation_interval: '1s' },
      rule_files: [root + rulesPath],
      scrape_configs: [{ job_name: 'smart-router', static_configs: targets }],
    };
    // JSON is YAML.
    writeFileSync(join(folder, 'prometheus.yml'), JSON.stringify(config));
    server = spawn(
      prometheus ?? '',
      [
        `--config.file=${join(folder, 'prometheus.yml')}`,
        `--storage.tsdb.path=${join(folder, 'data')}`,
        `--web.listen-address=127.0.0.1:${port}`,
      ],
      { stdio: 'ignore' },
    );
    await until(
      async () => (await query('smart_router_leader_status')).length === 1,
      'the router has been scraped',
      40_000,
    );
  });
  afterAll(async () => {
    const ended = new Promise((resolve) => server.once('exit', resolve));
    server.kill('SIGKILL');
    await ended;
    await router.stop();
    await engine.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  it('evaluates every rule without an error', { timeout: 60_000 }, async () => {
    const loaded = await until(async () => {
      const { groups } = await ask('rules');
      const all: LoadedRule[] = groups.flatMap((group: { rules: LoadedRule[] }) => group.rules);
      return all.every(({ health }) => health !== 'unknown') && all;
    }, 'all rules have been evaluated');
    expect(loaded.map(({ name }) => name).toSorted()).toEqual(rules.map(({ alert }) => alert).toSorted());
    expect(loaded.filter(({ health }) => health !== 'ok')).toEqual([]);
  });

  it('answers every query of the dashboards', async () => {
    for (const [where, expression] of expressions)
      await query(expression).catch((error: Error) => {
        throw new Error(`${where}: ${error.message}`);
      });
  });

  it('fires no alert while all is well, and only the one for no_pods after a call got no pod', {
    timeout: 60_000,
  }, async () => {
    expect(await firing()).toEqual([]);
    for (const call_sid of ['CA1', 'CA2', 'CA3', 'CA4', 'CA5', 'CA6'])
      await router.post('/allocate', { call_sid });
    const [alert, ...others] = await until(async () => {
      const now = await firing();
      return now.length > 0 && now;
    }, 'an alert fires');
    expect(others).toEqual([]);
    expect(alert?.labels).toEqual({
      alertname: 'SmartRouterNoCapacity',
      severity: 'page',
      job: 'smart-router',
      chain: 'pool:gold pool:basic',
    });
    expect(alert?.annotations.summary).toBe('Calls get no pod (pool:gold pool:basic)');
    // The scrape with the alert may have counted the calls before the last ones came.
    await until(async () => {
      const [live] = await query('sum(max by (job, namespace) (smart_router_active_calls{job=~"$job"}))');
      return live?.value[1] === '5';
    }, 'all live calls are counted');
  });
});

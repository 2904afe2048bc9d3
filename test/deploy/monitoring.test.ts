/** The shipped alerts, their routing, dashboards and the runbook, checked by Prometheus' own programs. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadYaml } from '@kubernetes/client-node';
import { describe, expect, it, onTestFinished } from 'vitest';
import { prometheusRules, ruleFiles } from '../../scripts/alert-rules.mjs';
import { alertRules, runbookOf } from '../../src/observe/alert-rules.js';
import { findOnPath, setupReason } from '../support/engines.js';
import { isDeep } from '../support/sets.js';
import { describeWith, only, readText, render, root, template } from './manifests.js';
import { dashboards, expressions, rules, rulesOf, rulesPath } from './monitoring-files.js';
import { asked, withoutVariables } from './promql.js';

const alertNames = rules.map(({ alert }) => alert);
const anchorOf = (alert: string) => alert.toLowerCase();

/** Declares the suite, skipped if the program is missing. */
function describeProgram(program: string, debianPackage: string, suite: () => void): void {
  if (findOnPath(program) !== undefined) describe(program, suite);
  else describe.skip(`${program} [it is not on PATH${setupReason(debianPackage)}]`, suite);
}

function run(program: string, ...args: string[]) {
  const { status, stdout, stderr } = spawnSync(findOnPath(program) ?? program, args, { encoding: 'utf8' });
  return { status, stdout, output: stdout + stderr };
}

const checked = (file: string) => run('promtool', 'check', 'rules', file);

function temporaryFile(name: string, text: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'smart-router-monitoring-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, name), text);
  return join(folder, name);
}

describeProgram('promtool', 'prometheus', () => {
  it('accepts the rules', () => {
    const { status, output } = checked(root + rulesPath);
    expect(output).toContain(`${rules.length} rules found`);
    expect(status).toBe(0);
  });

  // 9 s of CPU.
  it.runIf(isDeep)('passes the unit tests of the alerts [deep set only]', { timeout: 180_000 }, () => {
    const { status, output } = run(
      'promtool',
      'test',
      'rules',
      `${root}deploy/prometheus/smart-router.rules.test.yaml`,
    );
    expect(output).toContain('SUCCESS');
    expect(status).toBe(0);
  });

  it('parses every expression of the dashboards', () => {
    const recorded = expressions.map(([, expr], i) => ({
      record: `dashboards:${i}`,
      expr: withoutVariables(expr),
    }));
    // JSON is YAML.
    const text = JSON.stringify({ groups: [{ name: 'dashboards', rules: recorded }] });
    const { status, output } = checked(temporaryFile('dashboards.yaml', text));
    expect(output).toContain(`${expressions.length} rules found`);
    expect(status).toBe(0);
  });

  it('refuses an invalid expression', () => {
    const text = JSON.stringify({
      groups: [{ name: 'x', rules: [{ record: 'x', expr: 'sum(rate(x[5m])' }] }],
    });
    expect(checked(temporaryFile('broken.yaml', text)).status).not.toBe(0);
  });

  describeWith('helm', 'the chart', () => {
    it('renders valid rules', () => {
      const { stdout } = template('everything');
      const [, spec = ''] = /^kind: PrometheusRule\n(?:.*\n)*?spec:\n((?: .*\n)+)/m.exec(stdout) ?? [];
      const { status, output } = checked(temporaryFile('chart.yaml', spec));
      expect(output).toContain(`${rules.length} rules found`);
      expect(status).toBe(0);
    });
  });
});

describe('the README of the rules', () => {
  const text = readText('deploy/prometheus/README.md');

  it('links to existing files', () => {
    const links = [...text.matchAll(/\]\(([^)#]+)/g)].map(([, link = '']) => link);
    expect(links.length).toBeGreaterThan(4);
    expect(links.filter((link) => !existsSync(join(root, 'deploy/prometheus', link)))).toEqual([]);
  });

  it('puts an address before every link to the runbook', () => {
    const [, from = '', to = ''] = /sed 's\|([^|]+)\|([^|]+)\|'/.exec(text) ?? [];
    const links = rulesOf(readText(rulesPath).replaceAll(from, to)).map(
      ({ annotations }) => annotations.runbook_url,
    );
    expect(links.filter((link) => !link?.startsWith('https://git.example.com/'))).toEqual([]);
  });

  describeProgram('promtool', 'prometheus', () => {
    it('accepts its prometheus.yml', () => {
      const [, config = ''] = /```yaml\n(.*?)```/s.exec(text) ?? [];
      const { status, output } = run(
        'promtool',
        'check',
        'config',
        '--syntax-only',
        temporaryFile('prometheus.yml', config),
      );
      expect(output).toContain('SUCCESS');
      expect(status).toBe(0);
    });
  });
});

describe('the unit tests of the alerts', () => {
  const { tests } = loadYaml(readText('deploy/prometheus/smart-router.rules.test.yaml')) as {
    tests: { promql_expr_test?: { expr: string; exp_samples: { value: number }[] }[] }[];
  };
  const checks = tests.flatMap(({ promql_expr_test = [] }) => promql_expr_test);

  it.each(alertNames)('%s has a case that fires and one that does not', (alert) => {
    const about = checks.filter(({ expr }) => expr.includes(`alertname="${alert}"`));
    expect(about.some(({ exp_samples }) => exp_samples.length > 0)).toBe(true);
    expect(about.some(({ exp_samples }) => exp_samples.length === 0)).toBe(true);
  });

  it('test only alerts that exist', () => {
    const named = checks.flatMap(({ expr }) => /alertname="(\w+)"/.exec(expr)?.[1] ?? []);
    expect(named.filter((alert) => !alertNames.includes(alert))).toEqual([]);
  });
});

describe('the alerts', () => {
  it.each(ruleFiles)('%s is generated from the table of alerts (`npm run docs`)', (file) => {
    expect(readText(file)).toBe(prometheusRules(alertRules, runbookOf));
  });

  it('have unique names', () => {
    expect(new Set(alertNames).size).toBe(rules.length);
    expect(alertNames.filter((alert) => !/^SmartRouter[A-Z]\w+$/.test(alert))).toEqual([]);
  });

  it.each(rules.map((rule) => [rule.alert, rule] as const))(
    '%s has a description, a severity and a runbook page',
    (alert, { labels, annotations }) => {
      expect(['warning', 'critical', 'page']).toContain(labels.severity);
      expect(Object.keys(annotations).sort()).toEqual(['description', 'runbook_url', 'summary']);
      expect(annotations.summary?.length).toBeGreaterThan(10);
      expect(annotations.description?.length).toBeGreaterThan(30);
      expect(annotations.runbook_url).toBe(`docs/runbook.md#${anchorOf(alert)}`);
    },
  );

  it.each(rules.map((rule) => [rule.alert, rule] as const))(
    '%s groups by job and namespace, and its text uses only labels that its expression keeps',
    (alert, { expr, annotations }) => {
      if (/^(absent\(|up\{)/.test(expr)) return;
      const { groupings } = asked(expr);
      expect(groupings).toEqual(expect.arrayContaining(['job', 'namespace']));
      const named = [
        ...Object.values(annotations)
          .join(' ')
          .matchAll(/\$labels\.(\w+)/g),
      ].map(([, label = '']) => label);
      expect([alert, named.filter((label) => !groupings.includes(label))]).toEqual([alert, []]);
    },
  );

  it('never sum gauges that are equal on every router', () => {
    const shared =
      /sum[^(]*(?:by \([^)]*\) )?\(smart_router_(active_calls|removals_held|pool_(?!unmet)\w+|records_(stuck|oldest_stuck_seconds))\b/;
    expect(expressions.filter(([, expression]) => shared.test(expression))).toEqual([]);
  });
});

describe('Alertmanager', () => {
  const path = 'deploy/alertmanager/alertmanager.example.yaml';
  const config = loadYaml(readText(path)) as {
    inhibit_rules: { source_matchers: string[]; target_matchers: string[]; equal?: string[] }[];
  };

  /** The alerts that a matcher of names means, e.g. `alertname =~ "SmartRouter(A|B)"`. */
  const meant = (matchers: readonly string[]) =>
    matchers.reduce((left, text) => {
      const [, label, operator, value = ''] = /^(\w+) (=~|!=|=) "(.*)"$/.exec(text) ?? [];
      expect([text, label]).toEqual([text, 'alertname']);
      const pattern = new RegExp(`^(?:${value})$`);
      return left.filter((alert) => (operator === '!=' ? alert !== value : pattern.test(alert)));
    }, alertNames);

  it('inhibits only alerts that exist, by alerts that exist', () => {
    expect(config.inhibit_rules.length).toBeGreaterThan(3);
    for (const { source_matchers, target_matchers } of config.inhibit_rules) {
      const [sources, targets] = [meant(source_matchers), meant(target_matchers)];
      const names = [...source_matchers, ...target_matchers].join().match(/\w+(?=[|)])/g) ?? [];
      for (const name of names) expect(alertNames.some((alert) => alert.endsWith(name))).toBe(true);
      expect(sources.length).toBeGreaterThan(0);
      expect(targets.length).toBeGreaterThan(0);
      expect(sources.filter((alert) => targets.includes(alert))).toEqual([]);
    }
  });

  it('compares labels that both alerts have', () => {
    for (const { source_matchers, target_matchers, equal = [] } of config.inhibit_rules)
      for (const alert of equal.length > 0 ? [...meant(source_matchers), ...meant(target_matchers)] : []) {
        const { groupings } = asked(rules.find((rule) => rule.alert === alert)?.expr ?? '');
        expect([alert, equal.filter((label) => !groupings.includes(label))]).toEqual([alert, []]);
      }
  });

  it('has no secrets, only names of files with them', () => {
    expect(readText(path)).not.toMatch(/\b(routing_key|service_key|api_url|url): /);
  });

  describeProgram('amtool', 'prometheus-alertmanager', () => {
    it('accepts the example', () => {
      const { status, output } = run('amtool', 'check-config', root + path);
      expect(output).toContain('SUCCESS');
      expect(status).toBe(0);
    });

    it.each([
      ['page', 'smart-router-pagerduty,smart-router-chat'],
      ['critical', 'smart-router-pagerduty,smart-router-chat'],
      ['warning', 'smart-router-chat'],
    ])('routes severity %s to %s', (severity, receivers) => {
      const labels = ['alertname=SmartRouterNoLeader', `severity=${severity}`];
      const args = ['config', 'routes', 'test', `--config.file=${root}${path}`, ...labels];
      expect(run('amtool', ...args).stdout.trim()).toBe(receivers);
    });

    it('does not route alerts of other programs', () => {
      const args = [
        'config',
        'routes',
        'test',
        `--config.file=${root}${path}`,
        'alertname=Other',
        'severity=page',
      ];
      expect(run('amtool', ...args).stdout.trim()).toBe('none');
    });
  });
});

describe('the dashboards', () => {
  it('are two, calls and records, and link to each other', () => {
    expect(dashboards.map(([, { uid }]) => uid)).toEqual(['smart-router-calls', 'smart-router-records']);
    for (const [file, { uid }] of dashboards)
      expect(readText(`deploy/grafana/${file}`)).toContain(
        `"url": "/d/${uid === 'smart-router-calls' ? 'smart-router-records' : 'smart-router-calls'}"`,
      );
  });

  describe.each(dashboards)('%s', (_, dashboard) => {
    const panels = dashboard.panels.filter(({ type }) => type !== 'row');
    const rows = dashboard.panels.filter(({ type }) => type === 'row');

    it('is for Grafana 10 or newer, and any Prometheus', () => {
      expect(dashboard.schemaVersion).toBeGreaterThanOrEqual(38);
      expect(dashboard.templating.list.map(({ name, type }) => [name, type])).toEqual([
        ['datasource', 'datasource'],
        ['job', 'query'],
        ['namespace', 'query'],
      ]);
      const named = panels.flatMap(({ datasource, targets = [] }) => [
        datasource?.uid,
        ...targets.map((target) => target.datasource.uid),
      ]);
      // biome-ignore lint/suspicious/noTemplateCurlyInString: Grafana fills it in.
      expect([...new Set(named)]).toEqual(['${datasource}']);
    });

    it('has a row for each question, each with panels below it', () => {
      expect(rows.length).toBeGreaterThan(4);
      expect(rows.filter(({ title }) => !title.endsWith('?'))).toEqual([]);
      expect(dashboard.panels[0]?.type).toBe('row');
      dashboard.panels.forEach(({ type }, i) => {
        if (type === 'row') expect(dashboard.panels[i + 1]?.type).not.toBe('row');
      });
      expect(dashboard.panels.at(-1)?.type).not.toBe('row');
    });

    it.each(panels.map((panel) => [panel.title, panel] as const))(
      '%s has a unit, a description and a query',
      (__, { fieldConfig, description = '', targets = [] }) => {
        expect(fieldConfig?.defaults.unit).toMatch(/^\w+$/);
        expect(description.length).toBeGreaterThan(20);
        expect(targets.length).toBeGreaterThan(0);
        for (const { expr } of targets)
          for (const { metric, matchers } of asked(expr).metrics) {
            const labels = matchers.map(({ label }) => label);
            expect([metric, labels]).toEqual([metric, expect.arrayContaining(['job', 'namespace'])]);
          }
      },
    );

    it('has no overlapping panels', () => {
      const cells = dashboard.panels.flatMap(({ gridPos: { x, y, w, h } }) =>
        Array.from({ length: w * h }, (__, i) => `${x + (i % w)},${y + Math.floor(i / w)}`),
      );
      expect(new Set(cells).size).toBe(cells.length);
      expect(dashboard.panels.filter(({ gridPos: { x, w } }) => x + w > 24)).toEqual([]);
      expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
    });
  });
});

describe('the runbook', () => {
  const text = readText('docs/runbook.md');
  const pages = new Map(
    text
      .split(/^## /m)
      .slice(1)
      .map((page) => [page.slice(0, page.indexOf('\n')), page]),
  );
  const aboutAlerts = [...pages.keys()].filter((title) => /^SmartRouter/.test(title));

  it('has a page for every alert, and none for an alert that does not exist', () => {
    expect(aboutAlerts.toSorted()).toEqual(alertNames.toSorted());
  });

  it.each(alertNames)('%s has a page: what it means, how to check, what to do, when it ends', (alert) => {
    const page = pages.get(alert) ?? '';
    for (const part of ['Means', 'Check', 'Do', 'Ends'])
      expect([part, page]).toEqual([part, expect.stringContaining(`\n**${part}.** `)]);
    expect(page).toMatch(/^`(warning|critical|page)`/m);
    const [, severity] = /^`(warning|critical|page)`/m.exec(page) ?? [];
    expect(severity).toBe(rules.find((rule) => rule.alert === alert)?.labels.severity);
  });

  it.each(['A pod takes no calls', 'A drain does not end', 'The leader flaps', 'The store fails over'])(
    'has the procedure: %s',
    (title) => {
      expect(pages.get(title)?.length).toBeGreaterThan(300);
    },
  );

  it('links to existing headings and files', () => {
    const headings = (path: string) =>
      [...readText(path).matchAll(/^#+ (.*)$/gm)].map(([, title = '']) =>
        title
          .toLowerCase()
          .replace(/[^\w\s-]/g, '')
          .replace(/\s/g, '-'),
      );
    const links = [...text.matchAll(/\]\(([^)#]*)(?:#([^)]*))?\)/g)];
    expect(links.length).toBeGreaterThan(20);
    for (const [, file = '', anchor] of links) {
      const path = join('docs', file || 'runbook.md');
      expect([path, existsSync(root + path)]).toEqual([path, true]);
      if (anchor !== undefined)
        expect([path, headings(path)]).toEqual([path, expect.arrayContaining([anchor])]);
    }
  });

  it('uses documented metrics, in valid PromQL', () => {
    const documented = new Set(
      [...readText('docs/metrics.md').matchAll(/^\| `(\w+)` \|/gm)].map(([, name]) => name),
    );
    const queries = [...text.matchAll(/```promql\n(.*?)```/gs)].flatMap(([, block = '']) =>
      block.trim().split('\n'),
    );
    expect(queries.length).toBeGreaterThan(10);
    const names = queries.flatMap((query) => asked(query).metrics.map(({ metric }) => metric));
    const unknown = names.filter((name) => !documented.has(name.replace(/_(bucket|sum|count)$/, '')));
    expect(unknown.filter((name) => !/^(process|nodejs)_/.test(name))).toEqual([]);
    if (findOnPath('promtool') === undefined) return;
    const recorded = queries.map((expr, i) => ({ record: `runbook:${i}`, expr }));
    const file = temporaryFile(
      'runbook.yaml',
      JSON.stringify({ groups: [{ name: 'runbook', rules: recorded }] }),
    );
    expect(checked(file).output).toContain(`${queries.length} rules found`);
  });

  it('names commands that the router has', () => {
    const cli = readText('docs/cli.md');
    const commands = [...text.matchAll(/smart-router ((?:[a-z]+ ?)+)/g)]
      .map(([, command = '']) => command.trim())
      .filter((command) => !/^(leader|metrics)/.test(command));
    expect(commands.length).toBeGreaterThan(15);
    const known = [...cli.matchAll(/^## `([a-z ]+)`$/gm)].map(([, command]) => command);
    expect(commands.filter((command) => !known.includes(command))).toEqual([]);
  });
});

describe('the chart', () => {
  describeWith('helm', 'PrometheusRule', () => {
    it('has the rules only if enabled', () => {
      expect(render('minimal').filter(({ kind }) => kind === 'PrometheusRule')).toEqual([]);
    });

    it('has every alert, its own job, and the address of the runbook', () => {
      const { spec, metadata } = only(render('everything'), 'PrometheusRule');
      const rendered = rulesOf(JSON.stringify(spec));
      const base = 'https://git.example.com/voice/smart-router/blob/main/';
      const job = ['job=~".*smart-router.*"', 'job="calls-smart-router-metrics"'] as const;
      expect(rendered).toEqual(
        rules.map(({ annotations, expr, ...rest }) => ({
          ...rest,
          expr: expr.replace(...job),
          annotations: { ...annotations, runbook_url: base + annotations.runbook_url },
        })),
      );
      expect(rendered.filter(({ expr }) => expr.includes(job[1]))).toHaveLength(1);
      expect(metadata.labels).toMatchObject({ release: 'kube-prometheus-stack' });
    });

    it('watches the job that the Service makes', () => {
      const manifests = render('everything');
      const monitored = only(manifests, 'ServiceMonitor').spec.selector.matchLabels;
      const service = manifests.find(
        ({ kind, metadata }) =>
          kind === 'Service' &&
          Object.entries(monitored).every(([label, value]) => metadata.labels?.[label] === value),
      );
      expect(JSON.stringify(only(manifests, 'PrometheusRule'))).toContain(
        `job=\\"${service?.metadata.name}\\"`,
      );
    });

    it('has relative links without an address', () => {
      const { spec } = only(render('everything', 'prometheusRule.runbookBase=""'), 'PrometheusRule');
      expect(rulesOf(JSON.stringify(spec)).map(({ annotations }) => annotations.runbook_url)).toEqual(
        rules.map(({ annotations }) => annotations.runbook_url),
      );
    });

    it.each([
      ['prometheusRule.labels={"helm.sh/chart":"x"}', 'prometheusRule.labels sets helm.sh/chart'],
      ['prometheusRule.runbookBase="git.example.com"', 'runbookBase'],
    ])('refuses %s', (set, problem) => {
      const { code, stderr } = template('everything', set);
      expect(code).not.toBe(0);
      expect(stderr).toContain(problem);
    });
  });
});

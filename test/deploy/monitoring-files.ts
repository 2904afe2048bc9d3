/** Reads the shipped rules and dashboards for tests. */
import { readdirSync } from 'node:fs';
import { loadYaml } from '@kubernetes/client-node';
import { readText, root } from './manifests.js';

export const rulesPath = 'deploy/prometheus/smart-router.rules.yaml';

export interface Rule {
  alert: string;
  expr: string;
  for?: string;
  labels: Record<string, string>;
  annotations: Record<string, string>;
}

export interface Panel {
  type: string;
  id: number;
  title: string;
  description?: string;
  datasource?: { uid: string };
  gridPos: { h: number; w: number; x: number; y: number };
  fieldConfig?: { defaults: { unit?: string } };
  targets?: { expr: string; datasource: { uid: string } }[];
}

export interface Dashboard {
  uid: string;
  title: string;
  schemaVersion: number;
  panels: Panel[];
  annotations: { list: { expr: string }[] };
  templating: { list: { name: string; type: string; definition?: string }[] };
}

export const rulesOf = (text: string): Rule[] =>
  (loadYaml(text) as { groups: { rules: Rule[] }[] }).groups.flatMap(({ rules }) => rules);

export const rules = rulesOf(readText(rulesPath));

export const dashboards: [file: string, dashboard: Dashboard][] = readdirSync(`${root}deploy/grafana`)
  .filter((file) => file.endsWith('.json'))
  .map((file) => [file, JSON.parse(readText(`deploy/grafana/${file}`))]);

/** Every expression of alerts and dashboards, with the place where it stands. */
export const expressions: [where: string, expression: string][] = [
  ...rules.map(({ alert, expr }): [string, string] => [alert, expr]),
  ...dashboards.flatMap(([file, { panels, annotations }]) => [
    ...panels.flatMap(({ title, targets = [] }) =>
      targets.map(({ expr }): [string, string] => [`${file}: ${title}`, expr]),
    ),
    ...annotations.list.map(({ expr }): [string, string] => [`${file}: annotations`, expr]),
  ]),
];

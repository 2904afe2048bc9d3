/**
 * Manifests for tests: rendered by the real helm or kubectl without a cluster, parsed, and compared with the types of the
 * Kubernetes API, to find misspelt fields, which an API server would drop or refuse.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { dumpYaml, type KubernetesObject, loadAllYaml } from '@kubernetes/client-node';
import { describe } from 'vitest';
import { findProgram } from '../../scripts/setup-helm.mjs';
import { setupReason } from '../support/engines.js';

export const root = fileURLToPath(new URL('../..', import.meta.url));
export const chart = `${root}deploy/helm/smart-router`;
export const readText = (path: string) => readFileSync(root + path, 'utf8');

export interface Manifest {
  apiVersion: string;
  kind: string;
  metadata: {
    name: string;
    namespace?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
  };
  // biome-ignore lint/suspicious/noExplicitAny: every kind has a shape of its own.
  [field: string]: any;
}

/** Declares the suite, skipped if the program is missing. */
export function describeWith(program: string, title: string, suite: () => void): void {
  if (findProgram(program) !== undefined) describe(title, suite);
  else describe.skip(`${title} [${program} is not there${setupReason(program)}]`, suite);
}

interface Ran {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** Runs without the developer's kubeconfig, plug-ins and repositories. */
export function run(program: string, ...args: string[]): Ran {
  const { status, stdout, stderr } = spawnSync(findProgram(program) ?? program, args, {
    encoding: 'utf8',
    env: { PATH: process.env.PATH, HOME: '/nonexistent', KUBECONFIG: '/nonexistent/kubeconfig' },
  });
  return { code: status, stdout, stderr };
}

/** Value files under ci/ of the chart by name, then `--set` values; as release `calls` in namespace `voice`. */
export function template(values: string, ...sets: string[]): Ran {
  const file = ['--values', `${chart}/ci/${values}-values.yaml`];
  return run('helm', 'template', 'calls', chart, '--namespace', 'voice', ...file, ...setArgs(sets));
}

export const setArgs = (sets: readonly string[]) => sets.flatMap((set) => ['--set-json', set]);

export function render(values: string, ...sets: string[]): Manifest[] {
  const { code, stdout, stderr } = template(values, ...sets);
  if (code !== 0) throw new Error(stderr);
  return parse(stdout);
}

/** Parses without types: the typed loader renames and drops fields, except of kinds it does not know. */
export function parse(text: string): Manifest[] {
  const unknownKinds = text.replace(/^kind: (\w+)$/gm, 'kind: As$1');
  const documents: Manifest[] = loadAllYaml(unknownKinds);
  return documents.map((one) => ({ ...one, kind: one.kind.replace(/^As/, '') }));
}

/** Parses by the API's types: unknown fields are dropped, and values of a wrong type change. */
export function parseTyped(text: string): Manifest[] {
  return loadAllYaml(text).flatMap((one: KubernetesObject) => parse(dumpYaml(one)));
}

export function only(manifests: readonly Manifest[], kind: string, name?: string): Manifest {
  const found = manifests.filter((one) => one.kind === kind && (!name || one.metadata.name === name));
  if (found.length !== 1 || !found[0]) throw new Error(`${found.length} of ${kind} ${name ?? ''}`);
  return found[0];
}

/** Whether the labels match the selector. */
export const selects = (selector: Record<string, string>, labels: Record<string, string> = {}) =>
  Object.keys(selector).length > 0 && Object.entries(selector).every(([key, value]) => labels[key] === value);

export interface EnvEntry {
  name: string;
  value?: string;
  valueFrom?: { secretKeyRef?: { name: string; key: string; optional?: boolean }; fieldRef?: object };
}

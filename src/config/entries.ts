/** The shape of a row in a table of environment variables, and how the rows are read. */
import type { Clock } from '../clock.js';
import { hidePassword, type Kind } from './fields.js';
import { showValue } from './tiers.js';

export type Lookup = (name: string) => string;
export type Default = string | { readonly note: string; compute(lookup: Lookup, clock: Clock): string };

export interface Field<T> {
  readonly name: string;
  readonly section: string;
  readonly kind: Kind<T>;
  /** As in the environment. */
  readonly fallback: Default | undefined;
  readonly demoFallback: string | undefined;
  readonly description: string;
  /** `password`: a URL that may carry one. */
  readonly secret: boolean | 'password';
}

interface Extra {
  readonly demo?: string;
  readonly secret?: boolean | 'password';
}

export function optional<T>(
  name: string,
  kind: Kind<T>,
  description: string,
  extra: Extra = {},
): Field<T | undefined> {
  const { demo, secret = false } = extra;
  return { name, section: '', kind, fallback: undefined, demoFallback: demo, description, secret };
}

export function field<T>(
  name: string,
  kind: Kind<T>,
  fallback: Default,
  description: string,
  extra?: Extra,
): Field<T> {
  return { ...optional(name, kind, description, extra), kind, fallback };
}

export function section<T extends Record<string, Field<unknown>>>(title: string, fields: T): T {
  const entries = Object.entries(fields).map(([key, value]) => [key, { ...value, section: title }]);
  return Object.fromEntries(entries) as T;
}

export interface Given {
  readonly text: string | undefined;
  readonly source: 'default' | 'environment';
}

/** The text of a variable, if it is set. Blanks around it are removed, except in a secret, whose check rejects them. */
export function textOf({ name, secret }: Field<unknown>, env: NodeJS.ProcessEnv): string | undefined {
  return (secret === true ? env[name] : env[name]?.trim()) || undefined;
}

export function shown({ secret }: Field<unknown>, text: string): string {
  // Also for an address in the wrong variable.
  return secret === 'password' || text.includes('://') ? hidePassword(text) : text;
}

type Fields = Readonly<Record<string, Field<unknown>>>;
export type Values<F> = { readonly [K in keyof F]: F[K] extends Field<infer T> ? T : never };

export interface ReadFields<F> {
  /** Undefined for an unset or invalid variable. */
  values: Values<F>;
  /** The keys of invalid values. */
  invalid: Set<string>;
  problems: string[];
  warnings: string[];
}

export function readFields<F extends Fields>(
  fields: F,
  given: (field: Field<unknown>) => Given,
): ReadFields<F> {
  const values: Record<string, unknown> = {};
  const invalid = new Set<string>();
  const problems: string[] = [];
  const warnings: string[] = [];
  for (const [key, field] of Object.entries(fields)) {
    const { text, source } = given(field);
    values[key] = undefined;
    if (text === undefined) continue;
    const reading = field.kind.read(text);
    if ('value' in reading) {
      values[key] = reading.value;
      warnings.push(...(reading.warnings ?? []).map((warning) => `${field.name}: ${warning}`));
      continue;
    }
    invalid.add(key);
    // A default from another, invalid variable (the namespace of the Lease): that variable has its own line.
    if (source === 'default') continue;
    const got = field.secret === true ? 'the value is not shown' : `got ${showValue(shown(field, text))}`;
    // Some kinds quote the value: not if it is an address with a password.
    const quotable = field.secret !== false || shown(field, text) === text ? reading.problems : [];
    if (quotable.length === 0) problems.push(`${field.name} must be ${field.kind.expects}; ${got}`);
    problems.push(...quotable.map((problem) => `${field.name}: ${problem}`));
  }
  return { values: values as Values<F>, invalid, problems, warnings };
}

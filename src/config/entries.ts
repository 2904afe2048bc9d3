/** The shape of a row in a table of environment variables, and how the rows are read. */
import type { Clock } from '../clock.js';
import { hidePassword, type KeyUnit, type Kind } from './fields.js';
import { showValue } from './tiers.js';

export type Lookup = (name: string) => string;
export type Default = string | { readonly note: string; compute(lookup: Lookup, clock: Clock): string };

export interface Field<T, Unit extends KeyUnit = KeyUnit> {
  readonly name: string;
  readonly section: string;
  readonly kind: Kind<T, Unit>;
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

export function optional<T, Unit extends KeyUnit>(
  kind: Kind<T, Unit>,
  description: string,
  { demo, secret = false }: Extra = {},
): Field<T | undefined, Unit> {
  return { name: '', section: '', kind, fallback: undefined, demoFallback: demo, description, secret };
}

export function field<T, Unit extends KeyUnit>(
  kind: Kind<T, Unit>,
  fallback: Default,
  description: string,
  extra?: Extra,
): Field<T, Unit> {
  return { ...optional(kind, description, extra), kind, fallback };
}

/** Rows by the names of their variables. */
export function section<T extends Fields>(title: string, fields: T): T {
  const entries = Object.entries(fields).map(([name, row]) => [name, { ...row, name, section: title }]);
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

/**
 * The key of a value is the name of its variable: `LEASE_TTL` is `leaseTtlMs`, `SMART_ROUTER_API_KEY` is `apiKey`, and a
 * variable in minutes has its milliseconds.
 */
type Camel<Name> = Name extends `SMART_ROUTER_${infer Rest}` | `${infer Rest}_MINUTES`
  ? Camel<Rest>
  : Name extends `${infer First}_${infer Rest}`
    ? `${Lowercase<First>}${Capitalize<Camel<Rest>>}`
    : Lowercase<Name & string>;
type KeyOf<Name, F> = F extends Field<unknown, infer Unit> ? `${Camel<Name>}${Unit}` : never;
export type Values<F> = {
  readonly [Name in keyof F as KeyOf<Name, F[Name]>]: F[Name] extends Field<infer T> ? T : never;
};

function keyOf({ name, kind }: Field<unknown>): string {
  const words = name.replace(/^SMART_ROUTER_|_MINUTES$/g, '').toLowerCase();
  return words.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase()) + (kind.unit ?? '');
}

/** A value is undefined for an unset variable, and for an invalid one: `invalid` has its key. */
export function readFields<F extends Fields>(fields: F, given: (field: Field<unknown>) => Given) {
  const values: Record<string, unknown> = {};
  const invalid = new Set<string>();
  const problems: string[] = [];
  const warnings: string[] = [];
  for (const field of Object.values(fields)) {
    const key = keyOf(field);
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

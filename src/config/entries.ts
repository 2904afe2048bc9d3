/** The shape of a row in the table of environment variables. */
import type { Clock } from '../clock.js';
import type { Kind } from './fields.js';

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

/** Redis keys for TypeScript, from the same table as those of the Lua scripts. */
import { keyParameters, keyTable } from './key-table.mjs';

type KeyTable = typeof keyTable;

/** A key is a string, or a function of the one value in it. */
export type Keys = {
  [Name in keyof KeyTable]: KeyTable[Name]['pattern'] extends `${string}{${string}`
    ? (value: string) => string
    : string;
};

/** With an empty prefix: the keys as the audit names them. */
export function keysOf(prefix: string): Keys {
  const keys = Object.entries(keyTable).map(([name, { pattern }]) => {
    const [before, parameter, after] = pattern.split(/[{}]/);
    return [
      name,
      parameter === undefined ? prefix + before : (value: string) => prefix + before + value + after,
    ];
  });
  return Object.fromEntries(keys) as Keys;
}

/** The set of a pool's pods that can take a call; operators know the one of a merchant pool as `pods`. */
export function availableKey(keys: Keys, pool: string): string {
  return pool.startsWith('merchant:') ? keys.merchantPods(pool) : keys.available(pool);
}

/** Matches every key under the prefix. */
export function globOf(prefix: string): string {
  return `${prefix.replace(/[*?[\]\\]/g, '\\$&')}*`;
}

export interface KeyShape {
  types: readonly string[];
  ttl?: 'required' | 'optional';
}

/** The pod, the call, the pool or the merchant that a key belongs to. */
export interface KeySubject {
  pod?: string;
  call?: string;
  pool?: string;
  merchant?: string;
}

const subjects: Partial<Record<string, keyof KeySubject>> = {
  ...{ pod: 'pod', sid: 'call', merchant: 'merchant' },
  ...{ pool: 'pool', tierPool: 'pool', merchantPool: 'pool' },
};

const recognisers = Object.values(keyTable).map((shape) => {
  const parameter = /\{(\w+)\}/.exec(shape.pattern)?.[1] as keyof typeof keyParameters;
  const source = shape.pattern.replace(`{${parameter}}`, `(${keyParameters[parameter]})`);
  return { shape: shape as KeyShape, subject: subjects[parameter], pattern: new RegExp(`^${source}$`) };
});

/** Recognises a key without its prefix, or resolves to undefined. */
export function identifyKey(key: string): { shape: KeyShape; subject: KeySubject } | undefined {
  for (const { shape, subject, pattern } of recognisers) {
    const match = pattern.exec(key);
    if (match) return { shape, subject: subject ? { [subject]: match[1] } : {} };
  }
  return undefined;
}

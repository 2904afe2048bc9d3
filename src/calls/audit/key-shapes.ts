/** Which keys there may be under the prefix: their names, their types, and whether they end by themselves. */
import type { Finding } from './findings.js';

export interface KeyFacts {
  type: string;
  /** -1 = for ever. */
  ttlMs: number;
}

type Shape = readonly [pattern: RegExp, types: readonly string[], ttl: 'ttl' | 'for ever' | 'any'];
const shapes: readonly Shape[] = [
  [/^(tier:config|tier:version|fence|leader:epoch|data:version)$/, ['string'], 'for ever'],
  [/^(merchant:config|pools|pod:metadata)$/, ['hash'], 'for ever'],
  [/^leader$/, ['hash'], 'for ever'],
  [/^(reported|reported:due|flapping)$/, ['zset'], 'for ever'],
  [/^reported:silent$/, ['set'], 'for ever'],
  [/^reported:since$/, ['string'], 'for ever'],
  [/^removals:(held|confirmed)$/, ['set'], 'for ever'],
  [/^(events|journal|history)$/, ['stream'], 'for ever'],
  [/^smart_router:records:spool:/, ['list'], 'for ever'],
  [/^call:/, ['hash'], 'ttl'],
  [/^tombstones:\d+$/, ['hash'], 'ttl'],
  [/^lease:/, ['string'], 'ttl'],
  // An operator may write the mark by hand, without a time.
  [/^pod:draining:/, ['string'], 'any'],
  [/^pod:(tier|suspended):/, ['string'], 'for ever'],
  [/^pod:calls:/, ['zset'], 'for ever'],
  [/^pod:[^:]+$/, ['hash'], 'for ever'],
  [/^pool:[^:]+:assigned$/, ['set'], 'for ever'],
  [/^pool:[^:]+:available$/, ['set', 'zset'], 'for ever'],
  [/^pool:[^:]+:calls$/, ['zset'], 'for ever'],
  [/^merchant:[^:]+:(assigned|pods)$/, ['set'], 'for ever'],
  [/^merchant:[^:]+:calls$/, ['zset'], 'for ever'],
];

/** What is wrong with a key whatever is in it, or undefined. */
export function strangeKey(key: string, { type, ttlMs }: KeyFacts, prefix: string): Finding | undefined {
  const shape = shapes.find(([pattern]) => pattern.test(key));
  if (!shape) return { kind: 'unknown_key', text: `key ${prefix}${key} (${type}) is in no list of keys` };
  const [, types, ttl] = shape;
  if (!types.includes(type))
    return { kind: 'wrong_type', text: `key ${prefix}${key} is a ${type}, not a ${types.join(' or ')}` };
  if (ttl === 'ttl' && ttlMs < 0) return { kind: 'no_end', text: `key ${prefix}${key} has no time to live` };
  if (ttl === 'for ever' && ttlMs >= 0)
    return { kind: 'vanishes', text: `key ${prefix}${key} vanishes in ${ttlMs} ms` };
  return undefined;
}

const podKeys = /^(?:pod:(?:tier|draining|suspended|calls):|lease:)(.+)$/;

/** Whom a key speaks of: a pod, a call or a pool. */
export function subjectOf(key: string): { pod?: string; call?: string; pool?: string } {
  if (key.startsWith('call:')) return { call: key.slice('call:'.length) };
  const pod = podKeys.exec(key)?.[1] ?? /^pod:([^:]+)$/.exec(key)?.[1];
  if (pod !== undefined) return pod === 'metadata' ? {} : { pod };
  const pool = /^((?:pool|merchant):[^:]+):(?:assigned|available|pods|calls)$/.exec(key)?.[1];
  return pool === undefined ? {} : { pool };
}

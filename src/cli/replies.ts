/** The router's replies: their types, and how lists are read to their end. */
import type { Static } from 'typebox';
import type { Explained as ExplainedSchema } from '../http/explain-schemas.js';
import type * as recordSchemas from '../http/record-schemas.js';
import type * as schemas from '../http/schemas.js';
import type * as settingsSchemas from '../http/settings-schemas.js';
import type { Answer, RouterApi } from './api.js';
import { Failure } from './failure.js';

export type Status = Static<typeof schemas.Status>;
export type Pool = Static<typeof schemas.Pool>;
export type Pod = Static<typeof schemas.Pod>;
export type Call = Static<typeof schemas.Call>;
export type WaitingCall = Static<typeof schemas.WaitingCall>;
export type Tiers = Static<typeof settingsSchemas.Tiers>;
export type Audit = Static<typeof schemas.Audit>;
export type Removals = Static<typeof schemas.Removals>;
export type RemovalsConfirmed = Static<typeof schemas.RemovalsConfirmed>;
export type Merchant = Static<typeof settingsSchemas.Merchant>;
export type Allocated = Static<typeof schemas.Allocated>;
export type Explained = Static<typeof ExplainedSchema>;
export type Released = Static<typeof schemas.Released>;
export type Drained = Static<typeof schemas.Drained>;
export type Undrained = Static<typeof schemas.Undrained>;
export type RecordWorkflows = Static<typeof recordSchemas.RecordWorkflows>;
export type RecordNumbers = RecordWorkflows['workflows'][number];
export type StuckRecords = Static<typeof recordSchemas.StuckRecords>;
export type FailedRecords = Static<typeof recordSchemas.FailedRecords>;
export type RecordDocument = StuckRecords['records'][number];

const pageSize = 1000;
/** Ten million entries; a broken router must not keep us reading. */
const maxPages = 10_000;

/** Reads all pages of `/pods` or `/calls`, or the waiting calls. An entry that moves between pages is returned once. */
export async function readAll<T>(
  api: RouterApi,
  list: 'pods' | 'calls' | 'waiting',
  pool: string | undefined,
  idOf: (item: T) => string,
): Promise<Answer<T[]>> {
  const found = new Map<string, T>();
  let cursor: string | null = null;
  for (let page = 0; page < maxPages; page++) {
    const query = new URLSearchParams({ limit: String(pageSize) });
    if (pool !== undefined) query.set('pool', pool);
    if (list === 'waiting') query.set('waiting', 'true');
    if (cursor !== null) query.set('cursor', cursor);
    const { body, nowMs }: Answer<Record<string, unknown>> = await api.send(
      `/${list === 'pods' ? list : 'calls'}?${query}`,
      {
        has: list,
      },
    );
    for (const item of body[list] as T[]) found.set(idOf(item), item);
    cursor = typeof body.cursor === 'string' ? body.cursor : null;
    if (cursor === null) return { body: [...found.values()], nowMs };
  }
  throw new Failure('failed', `the router's list of ${list} does not end after ${maxPages} pages`);
}

export async function readStatus(api: RouterApi): Promise<Answer<Status>> {
  return api.send<Status>('/status', { has: 'pools' });
}

/** For additional data: undefined after any failure except a rejected key. */
export async function readOptional<T>(api: RouterApi, path: string, has: string): Promise<T | undefined> {
  try {
    return (await api.send<T>(path, { has })).body;
  } catch (error) {
    if (error instanceof Failure && ['unauthorized', 'forbidden'].includes(error.code)) throw error;
    return undefined;
  }
}

/** The pool id of `gold`, `pool:gold`, `acme` or `merchant:acme`. */
export function poolIdOf(name: string, pools: Readonly<Record<string, Pool>>): string {
  const bare = name.replace(/^pool:/, '');
  if (Object.hasOwn(pools, bare)) return bare.startsWith('merchant:') ? bare : `pool:${bare}`;
  if (Object.hasOwn(pools, `merchant:${name}`)) return `merchant:${name}`;
  const known = Object.keys(pools).sort();
  const hint =
    known.length > 0 ? `the pools are ${known.slice(0, 10).join(', ')}` : 'the router has no pools yet';
  throw new Failure('pool_not_found', `no pool ${JSON.stringify(name)}: ${hint}`);
}

/** The replies of the router: their types, and reading its lists to the end. */

import type { Static } from 'typebox';
import type * as recordSchemas from '../http/record-schemas.js';
import type * as schemas from '../http/schemas.js';
import type { Answer, RouterApi } from './api.js';
import { Failure } from './failure.js';

export type Status = Static<typeof schemas.Status>;
export type Pool = Static<typeof schemas.Pool>;
export type Pod = Static<typeof schemas.Pod>;
export type Call = Static<typeof schemas.Call>;
export type Tiers = Static<typeof schemas.Tiers>;
export type Audit = Static<typeof schemas.Audit>;
export type Removals = Static<typeof schemas.Removals>;
export type RemovalsConfirmed = Static<typeof schemas.RemovalsConfirmed>;
export type Merchant = Static<typeof schemas.Merchant>;
export type Allocated = Static<typeof schemas.Allocated>;
export type Released = Static<typeof schemas.Released>;
type Draining = Static<typeof schemas.Drained>;
/** Older routers do not say when the drain ends. */
export type Drained = Omit<Draining, 'drain_expires_at'> & Partial<Draining>;
export type Undrained = Static<typeof schemas.Undrained>;
export type RecordWorkflows = Static<typeof recordSchemas.RecordWorkflows>;
export type RecordNumbers = RecordWorkflows['workflows'][number];
export type StuckRecords = Static<typeof recordSchemas.StuckRecords>;
export type FailedRecords = Static<typeof recordSchemas.FailedRecords>;
export type RecordDocument = StuckRecords['records'][number];

const pageSize = 1000;
/** Ten million entries: a router that never ends its list is not followed for ever. */
const mostPages = 10_000;

/** All pages of `/pods` or `/calls`; each entry once, although the store may give one twice while it moves. */
export async function readAll<T>(
  api: RouterApi,
  list: 'pods' | 'calls',
  pool: string | undefined,
  idOf: (item: T) => string,
): Promise<Answer<T[]>> {
  const found = new Map<string, T>();
  let cursor: string | null = null;
  for (let page = 0; page < mostPages; page++) {
    const query = new URLSearchParams({ limit: String(pageSize) });
    if (pool !== undefined) query.set('pool', pool);
    if (cursor !== null) query.set('cursor', cursor);
    const { body, nowMs }: Answer<Record<string, unknown>> = await api.send(`/${list}?${query}`, {
      has: list,
    });
    for (const item of body[list] as T[]) found.set(idOf(item), item);
    cursor = typeof body.cursor === 'string' ? body.cursor : null;
    if (cursor === null) return { body: [...found.values()], nowMs };
  }
  throw new Failure('failed', `the router's list of ${list} does not end after ${mostPages} pages`);
}

export async function readStatus(api: RouterApi): Promise<Answer<Status>> {
  return api.send<Status>('/status', { has: 'pools' });
}

/** What is only beside the rest must not stand in its way: unknown for any reason but a refused key. */
export async function ifTold<T>(api: RouterApi, path: string, has: string): Promise<T | undefined> {
  try {
    return (await api.send<T>(path, { has })).body;
  } catch (error) {
    if (error instanceof Failure && ['unauthorized', 'forbidden'].includes(error.code)) throw error;
    return undefined;
  }
}

/** What a list is asked for: `gold`, `pool:gold` and `merchant:acme` are all understood. */
export function poolIdOf(name: string, pools: Readonly<Record<string, Pool>>): string {
  const bare = name.replace(/^pool:/, '');
  if (Object.hasOwn(pools, bare)) return bare.startsWith('merchant:') ? bare : `pool:${bare}`;
  if (Object.hasOwn(pools, `merchant:${name}`)) return `merchant:${name}`;
  const known = Object.keys(pools).sort();
  const hint = known.length > 0 ? `known are ${known.slice(0, 10).join(', ')}` : 'the router knows none yet';
  throw new Failure('pool_not_found', `no pool ${JSON.stringify(name)}: ${hint}`);
}

export const byText = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);

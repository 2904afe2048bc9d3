/** The router's replies: their types, and how lists are read to their end. */
import type { Static } from 'typebox';
import type * as operatorSchemas from '../http/operator-schemas.js';
import type * as recordSchemas from '../http/record-schemas.js';
import type * as schemas from '../http/schemas.js';
import type { Answer, RouterApi } from './api.js';
import { Failure } from './failure.js';

export type Status = Static<typeof schemas.Status>;
export type Pool = Static<typeof schemas.Pool>;
export type Pod = Static<typeof schemas.Pod>;
export type Call = Static<typeof schemas.Call>;
export type WaitingCall = Static<typeof schemas.WaitingCall>;
export type Tiers = Static<typeof operatorSchemas.Tiers>;
export type Audit = Static<typeof schemas.Audit>;
export type Removals = Static<typeof schemas.Removals>;
export type RemovalsConfirmed = Static<typeof schemas.RemovalsConfirmed>;
export type Merchant = Static<typeof operatorSchemas.Merchant>;
export type Merchants = Static<typeof operatorSchemas.Merchants>;
export type Allocated = Static<typeof schemas.Allocated>;
export type Explained = Static<typeof operatorSchemas.Explained>;
export type Released = Static<typeof schemas.Released>;
export type Drained = Static<typeof schemas.Drained>;
export type Undrained = Static<typeof schemas.Undrained>;
export type AlertList = Static<typeof operatorSchemas.AlertList>;
export type Alert = AlertList['alerts'][number];
export type History = Static<typeof operatorSchemas.History>;
/** Each type has fields of its own. */
export type RouterEvent = Static<typeof operatorSchemas.FoundEvents>['events'][number] & {
  readonly [field: string]: unknown;
};
type WithEvents<T> = Omit<T, 'events'> & { events: RouterEvent[] };
export type FoundEvents = WithEvents<Static<typeof operatorSchemas.FoundEvents>>;
export type Timeline = WithEvents<Static<typeof operatorSchemas.Timeline>>;
export type RecordWorkflows = Static<typeof recordSchemas.RecordWorkflows>;
export type RecordNumbers = RecordWorkflows['workflows'][number];
export type StuckRecords = Static<typeof recordSchemas.StuckRecords>;
export type FailedRecords = Static<typeof recordSchemas.FailedRecords>;
export type RecordDocument = StuckRecords['records'][number];

interface Lists {
  pods: Pod;
  calls: Call;
  waiting: WaitingCall;
}

const pageSize = 1000;
/** Ten million entries; a broken router must not keep us reading. */
const maxPages = 10_000;

/** Reads all pages of `/pods` or `/calls`, or the waiting calls. An entry that moves between pages is returned once. */
export async function readAll<List extends keyof Lists>(
  api: RouterApi,
  list: List,
  pool?: string,
): Promise<Answer<Lists[List][]>> {
  const found = new Map<unknown, Lists[List]>();
  const query = new URLSearchParams({ limit: String(pageSize) });
  if (pool !== undefined) query.set('pool', pool);
  if (list === 'waiting') query.set('waiting', 'true');
  for (let page = 0; page < maxPages; page++) {
    const path = `/${list === 'pods' ? 'pods' : 'calls'}?${query}`;
    const { body, nowMs } = await api.send<Record<List, Lists[List][]> & { cursor?: unknown }>(path, list);
    for (const item of body[list]) found.set('call_sid' in item ? item.call_sid : item.pod_name, item);
    if (typeof body.cursor !== 'string') return { body: [...found.values()], nowMs };
    query.set('cursor', body.cursor);
  }
  throw new Failure('failed', `the router's list of ${list} does not end after ${maxPages} pages`);
}

export const readStatus = (api: RouterApi) => api.send<Status>('/status', 'pools');

/** For additional data: undefined after any failure except a rejected key. */
export async function readOptional<T>(api: RouterApi, path: string, has: string): Promise<T | undefined> {
  try {
    return (await api.send<T>(path, has)).body;
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

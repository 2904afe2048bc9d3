/** Where the store and the model disagree. */
import type { PoolId } from '../../../src/config/tiers.js';
import { isMarkByHand, type Keyspace, parseKind, parseState } from '../invariants.js';
import type { Model } from './model.js';
import { same } from './same.js';
import type { ModelPod } from './state.js';

export function differences(model: Model, keyspace: Keyspace): string[] {
  const state = parseState(keyspace, model.now);
  // The score of a shared pod is its load; in a set every pod has 0, as has a free exclusive pod.
  const score = (pod: ModelPod) => state.pools.get(pod.pool)?.available.get(pod.name);
  const expectedScore = (pod: ModelPod) => (pod.listed === 'yes' ? scoreOf(model, pod) : undefined);
  return [
    ...same(
      [...state.pools.values()].map(({ id, value }) => [id, value ?? '']),
      [...model.pools],
      'pools',
    ),
    ...same([...state.pods.keys()], [...model.pods.keys()], 'pods'),
    ...same(keyspace.keys.get('removals:held')?.items ?? [], [...model.held], 'pods held'),
    ...same(keyspace.keys.get('removals:confirmed')?.items ?? [], [...model.confirmed], 'removals confirmed'),
    ...same(
      keyspace.keys.get('reported:silent')?.items ?? [],
      [...model.reports].flatMap(([name, { isBlocked }]) => (isBlocked ? [name] : [])),
      'pods blocked for silence',
    ),
    ...same(
      (keyspace.keys.get('flapping')?.items ?? []).filter((_, i) => i % 2 === 0),
      [...model.flapping.keys()],
      'pods that cool off',
    ),
    ...same([...state.records.keys()], [...model.records.keys(), ...model.waits.keys()], 'call records'),
    ...same([...state.limits], [...model.limits], 'limits'),
    ...[...model.limited].flatMap(([merchant, calls]) =>
      same(
        [...(state.limited.get(merchant) ?? [])],
        [...calls],
        `calls that the limit of ${merchant} counts`,
      ),
    ),
    ...[...model.queues.values()].flatMap(({ name, calls, tag, isListed }) => {
      const queue = state.queues.get(name);
      const order = [...(queue?.calls.keys() ?? [])].join(' ');
      const lists = [...state.listed.values()].some((queues) => queues.has(name));
      return [
        ...same(order, model.inQueue(name).join(' '), `calls of queue '${name}'`),
        ...(calls.size > 0 && isListed
          ? same(Number(queue?.rules.get('tag')), tag, `tag of queue '${name}'`)
          : []),
        ...same(lists, isListed, `queue '${name}' is listed`),
      ];
    }),
    ...[...model.waits].flatMap(([sid, { queue, merchant, untilMs, dueMs }]) => {
      const real = state.records.get(sid);
      return same(
        [
          real?.get('hold'),
          real?.get('queue'),
          real?.get('merchant_id'),
          real?.get('wait_until'),
          state.due.get(sid),
        ],
        ['waiting', queue, merchant, String(untilMs), dueMs],
        `wait of ${sid}`,
      );
    }),
    ...[...model.pods.values()].flatMap((pod) => {
      const real = state.pods.get(pod.name);
      const drain = pod.drain === Number.POSITIVE_INFINITY ? 'by hand' : pod.drain?.toFixed(0);
      const mark = real?.drainingUntil;
      return [
        ...same(real?.pool, pod.pool, `pool of ${pod.name}`),
        ...same([...(real?.calls ?? [])], [...pod.calls], `calls of ${pod.name}`),
        ...same(real?.suspended, pod.suspended, `suspension of ${pod.name}`),
        ...same(mark && isMarkByHand(mark) ? 'by hand' : mark, drain, `draining mark of ${pod.name}`),
        ...same(real?.fields.get('uid') ?? '', pod.uid, `uid of ${pod.name}`),
        ...same(real?.fields.get('restarts'), pod.restarts?.toString(), `restarts of ${pod.name}`),
        ...(pod.listed === 'maybe'
          ? []
          : same(score(pod), expectedScore(pod), `score of ${pod.name} in available of ${pod.pool}`)),
      ];
    }),
    ...[...model.records].flatMap(([sid, record]) => {
      const real = state.records.get(sid);
      return same(
        [
          real?.get('pod_name'),
          real?.get('fence'),
          real?.get('source_pool'),
          real?.get('allocated_at'),
          real?.get('hold'),
        ],
        [
          record.pod,
          String(record.fence),
          record.pool,
          record.allocatedAt,
          record.isAssigned ? 'assigned' : undefined,
        ],
        `record of ${sid}`,
      );
    }),
    ...[...state.pools.values()].flatMap(({ id, index }) =>
      same([...index], [...(model.index.get(id as PoolId) ?? [])], `index of ${id}`),
    ),
    ...[...model.tombstones].flatMap(([sid, until]) =>
      until > model.now ? same(state.tombstones.get(sid), until, `tombstone of ${sid}`) : [],
    ),
  ];
}

function scoreOf(model: Model, pod: ModelPod): number {
  return parseKind(model.pools.get(pod.pool)).kind === 'shared' ? pod.calls.size : 0;
}

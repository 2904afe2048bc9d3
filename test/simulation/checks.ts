/** The checks: of the keys at any moment, and of everything once all faults have ended. */
import { createHash } from 'node:crypto';
import { scripts } from '../../src/calls/store/scripts.generated.js';
import { dumpScript, type Keyspace, keyspaceOf, violations } from '../support/invariants.js';
import type { Reply } from './protocol.js';
import { prefix } from './router.js';
import type { World } from './world.js';

/** What the keys say about each other, at this moment. */
export function checkKeys(world: World): void {
  const { store, history } = world;
  if (!store.isUp) return;
  for (const problem of violations(keysOf(world), {
    prefix,
    maxLowered: world.operators.changesTiers,
    maxCallsLowered: true, // operators change merchants in every world; the audit knows when
  }))
    history.violated(problem);
}

const shaOf = (text: string) => createHash('sha1').update(text).digest('hex');
/** Those that only a leader may run: their first argument after the time is its epoch. */
const leadersScripts = new Map(
  (['register', 'suspend', 'remove', 'sweep'] as const).flatMap((name) => [
    [scripts[name], name],
    [shaOf(scripts[name]), name],
  ]),
);

/** Invariant 9, at the store itself: whose write was accepted. */
export function checkWrite(
  { history }: World,
  [, script, , , , epoch]: readonly (string | number)[],
  reply: Reply | undefined,
): void {
  const name = leadersScripts.get(String(script));
  if (name && Array.isArray(reply) && reply[0] === 'ok') history.accepted(name, Number(epoch));
}

/** One replica leads, the store has exactly the calls that agents serve, every free pod is available. */
export function checkHealed(world: World): void {
  const { history, agents, running } = world;
  const leaders = running.filter(({ manager }) => manager.isLeader);
  if (leaders.length !== 1) history.violated(`${leaders.length} replicas lead after all faults ended`);
  if (world.audits === 0) history.violated('no audit has run');
  checkKeys(world);
  const { keys } = keysOf(world);
  const served = new Map(
    [...agents.all.values()].flatMap(({ name, serving, reports }) =>
      [...serving.values()].map((call) => {
        // A call that is not reported may have ended with its lease or with the store's data.
        const mustBeKnown = reports || (!call.isExcused && call.leaseUntilMs > world.store.nowMs);
        return [`${call.sid} on ${name}`, mustBeKnown] as [string, boolean];
      }),
    ),
  );
  for (const [key, { items }] of keys)
    if (/^waiting:(calls:|due$)|:waiting$/.test(key)) history.violated(`${key} is left: ${items.join(' ')}`);
  const known = [...keys].flatMap(([key, { items }]) =>
    key.startsWith('pod:calls:')
      ? items.filter((_, i) => i % 2 === 0).map((sid) => `${sid} on ${key.slice(10)}`)
      : [],
  );
  for (const [one, mustBeKnown] of served)
    if (mustBeKnown && !known.includes(one))
      history.violated(`${one} is served by an agent but not in the store`);
  for (const one of known)
    if (!served.has(one)) history.violated(`${one} is in the store but not served: a leak`);
  const free = [...keys].flatMap(([key, { type, items }]) =>
    /:available$|^merchant:.*:pods$/.test(key)
      ? type === 'zset'
        ? items.filter((_, i) => i % 2 === 0)
        : items
      : [],
  );
  // A drain of the earlier pod that a clock ahead of the cluster's dates after the start: see docs/guarantees.md.
  const isDrainedEarly = (name: string) => world.store.skewMs > 0 && keys.has(`pod:draining:${name}`);
  for (const { name, serving } of agents.all.values())
    if (serving.size === 0 && !free.includes(name) && !isDrainedEarly(name))
      history.violated(`${name} is free but not available`);
}

function keysOf({ store }: World): Keyspace {
  return keyspaceOf(store.admin('EVAL', dumpScript, 1, prefix), prefix);
}

/** What must be true: of the keys at any moment, and of everything once the world has healed. */
import { dumpScript, type Keyspace, keyspaceOf, violations } from '../support/invariants.js';
import { prefix } from './router.js';
import type { World } from './world.js';

/** What the keys say about each other, at this moment. */
export function checkKeys(world: World): void {
  const { store, history } = world;
  if (!store.isUp) return;
  for (const problem of violations(keysOf(world), { prefix })) history.violated(problem);
}

/** One leads, every call that is spoken is known and nothing else, every pod can be had. */
export function checkHealed(world: World): void {
  const { history, agents, running } = world;
  const leaders = running.filter(({ manager }) => manager.isLeader);
  if (leaders.length !== 1) history.violated(`${leaders.length} lead after everything was healed`);
  checkKeys(world);
  const { keys } = keysOf(world);
  const spoken = new Map(
    [...agents.values()].flatMap(({ name, serving, reports }) =>
      [...serving.values()].map((call) => {
        // What nobody reports may have ended for us, with its lease or with the store.
        const mustBeKnown = reports || (!call.isExcused && call.leaseUntilMs > world.store.nowMs);
        return [`${call.sid} on ${name}`, mustBeKnown] as [string, boolean];
      }),
    ),
  );
  const known = [...keys].flatMap(([key, { items }]) =>
    key.startsWith('pod:calls:')
      ? items.filter((_, i) => i % 2 === 0).map((sid) => `${sid} on ${key.slice(10)}`)
      : [],
  );
  for (const [one, mustBeKnown] of spoken)
    if (mustBeKnown && !known.includes(one)) history.violated(`${one} is spoken and not known`);
  for (const one of known) if (!spoken.has(one)) history.violated(`${one} is known and not spoken: a leak`);
  const free = [...keys].flatMap(([key, { type, items }]) =>
    key.endsWith(':available') ? (type === 'zset' ? items.filter((_, i) => i % 2 === 0) : items) : [],
  );
  for (const { name, serving } of agents.values())
    if (serving.size === 0 && !free.includes(name)) history.violated(`${name} is free and cannot be had`);
}

function keysOf({ store }: World): Keyspace {
  return keyspaceOf(store.admin('EVAL', dumpScript, 1, prefix), prefix);
}

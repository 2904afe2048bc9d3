/** What there is to see at this moment, gathered from those who know. */

import type { Deeds } from './actions.js';
import type { Agents } from './agents.js';
import type { Roster } from './cluster-monitor.js';
import type { Fleet } from './fleet.js';
import type { Ledger } from './ledger.js';
import type { Narrator } from './narrator.js';
import type { PoolNumbers, RouterStatus } from './operator.js';
import type { RecordPlane, RecordsView } from './records/plane.js';
import type { ReplicaState, Routers } from './routers.js';
import { type AgentSet, agentCount, sets } from './setup.js';

/** `draining`: asked to end, with or without calls. `gone`: no pod of that name at the moment. */
export type CellState = 'free' | 'busy' | 'draining' | 'starting' | 'crashed' | 'gone';

export interface Cell {
  state: CellState;
  calls: number;
}

export interface View {
  routers: { name: string; state: ReplicaState; leads: boolean }[];
  storeAnswers: boolean;
  apiAnswers: boolean;
  /** The cells are what the agents do, the numbers what the routers say. */
  pools: { set: AgentSet; cells: Cell[]; numbers: PoolNumbers | undefined }[];
  roll: { version: number; done: number; total: number; isRolling: boolean };
  ledger: Ledger;
  records: RecordsView;
}

export interface ViewSources {
  routers: Routers;
  narrator: Narrator;
  roster: Roster;
  agents: Agents;
  fleet: Fleet;
  deeds: Deeds;
  ledger: Ledger;
  records: RecordPlane;
}

export function look(
  { routers, narrator, roster, agents, fleet, deeds, ledger, records }: ViewSources,
  status: RouterStatus | undefined,
): View {
  const cellOf = (name: string): Cell => {
    const calls = agents.callsOn(name);
    const state = roster.agent(name)?.state ?? 'gone';
    if (state === 'ready' && deeds.isDrained(name)) return { state: 'draining', calls };
    if (state === 'ready') return { state: calls > 0 ? 'busy' : 'free', calls };
    return { state: state === 'terminating' ? 'draining' : state, calls };
  };
  return {
    routers: routers.replicas.map(({ name, state }) => ({ name, state, leads: narrator.leader === name })),
    storeAnswers: !deeds.isStorePaused,
    apiAnswers: !deeds.isApiDown,
    pools: sets.map((set) => ({
      set,
      cells: Array.from({ length: set.replicas }, (_, i) => cellOf(`${set.name}-${i}`)),
      numbers: status?.pools[set.pool.replace(/^pool:/, '')],
    })),
    roll: { version: fleet.version, done: fleet.renewed, total: agentCount, isRolling: fleet.isRolling },
    ledger,
    records: records.view(),
  };
}

/** The state of the demo at one moment, as the display shows it. */
import type { Actions, ActionsOptions } from './actions.js';
import type { CallCounts } from './callers.js';
import type { PoolNumbers, RouterStatus } from './operator.js';
import type { ProcessState } from './processes.js';
import type { RecordsView } from './records/plane.js';
import { type AgentSet, agentCount, sets } from './setup.js';

/** `draining`: asked to stop, with or without calls. `gone`: no pod of that name at the moment. */
export type CellState = 'free' | 'busy' | 'draining' | 'starting' | 'crashed' | 'gone';

export interface Cell {
  state: CellState;
  calls: number;
}

export interface View {
  routers: { name: string; state: ProcessState; leads: boolean }[];
  storeAnswers: boolean;
  apiAnswers: boolean;
  /** The cells come from the agents, the numbers from the routers. */
  pools: { set: AgentSet; cells: Cell[]; numbers: PoolNumbers | undefined }[];
  roll: { version: number; done: number; total: number; isRolling: boolean };
  calls: CallCounts;
  records: RecordsView;
}

type ViewSources = { actions: Actions } & Pick<
  ActionsOptions,
  'routers' | 'monitor' | 'agents' | 'fleet' | 'counts' | 'records'
>;

export function viewOf(
  { routers, monitor, agents, fleet, actions, counts, records }: ViewSources,
  status: RouterStatus | undefined,
): View {
  const cellOf = (name: string): Cell => {
    const calls = agents.callsOn(name);
    const state = monitor.agent(name)?.state ?? 'gone';
    if (state === 'ready' && actions.isDrained(name)) return { state: 'draining', calls };
    if (state === 'ready') return { state: calls > 0 ? 'busy' : 'free', calls };
    return { state: state === 'terminating' ? 'draining' : state, calls };
  };
  return {
    routers: routers.replicas.map(({ name, state }) => ({ name, state, leads: monitor.leader === name })),
    storeAnswers: !actions.isStorePaused,
    apiAnswers: !actions.isApiDown,
    pools: sets.map((set) => ({
      set,
      cells: Array.from({ length: set.replicas }, (_, i) => cellOf(`${set.name}-${i}`)),
      numbers: status?.pools[set.pool.replace(/^pool:/, '')],
    })),
    roll: { version: fleet.version, done: fleet.updated, total: agentCount, isRolling: fleet.isRolling },
    calls: counts,
    records: records.view(),
  };
}

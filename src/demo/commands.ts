/** The actions by their word: commands of a visitor (a key on a terminal, the word elsewhere) and steps of the scenario. */
import type { Actions } from './actions.js';
import type { Scenario } from './scenario.js';

interface Action {
  /** Of a command of the visitor; others are steps of the scenario only. */
  key?: string;
  what?: string;
  run: (actions: Actions) => Promise<void>;
}

export const actionsByWord = {
  'kill-leader': { key: 'k', what: 'kill the leader', run: (actions) => actions.endLeader('kill') },
  'stop-leader': { key: 's', what: 'stop the leader', run: (actions) => actions.endLeader('stop') },
  roll: { key: 'r', what: 'roll the agents', run: (actions) => actions.roll() },
  crash: { key: 'c', what: 'crash an agent', run: (actions) => actions.crash() },
  delete: { key: 'd', what: 'delete an agent', run: (actions) => actions.delete() },
  drain: { key: 'n', what: 'drain an agent', run: (actions) => actions.drain() },
  'lose-redis': { key: 'f', what: 'flush Redis', run: (actions) => actions.flushStore() },
  'pause-redis': { key: 'x', what: 'pause Redis', run: (actions) => actions.pauseStore() },
  'kill-worker': { key: 'w', what: 'kill a worker', run: (actions) => actions.killWorker() },
  api: { key: 'a', what: 'API server down/up', run: (actions) => actions.toggleApi() },
  rush: { key: 'u', what: 'rush hour', run: (actions) => actions.rush() },
  exhaust: { key: 'e', what: 'exhaust a pool', run: (actions) => actions.exhaust() },
  'merchant-rush': { run: (actions) => actions.merchantRush() },
  'lose-release': { run: (actions) => actions.loseRelease() },
} as const satisfies Record<string, Action>;

export type Word = keyof typeof actionsByWord;

export interface Command {
  key: string;
  word: string;
  what: string;
  run: () => Promise<void> | void;
}

export interface CommandParts {
  actions: Actions;
  scenario: Scenario;
  quit: () => void;
  help: () => void;
}

export function commandsOf({ actions, scenario, quit, help }: CommandParts): Command[] {
  const acts = Object.entries<Action>(actionsByWord).flatMap(([word, { key, what, run }]) => {
    if (key === undefined || what === undefined) return [];
    const pauseAndRun = () => {
      scenario.pause();
      return run(actions);
    };
    return [{ key, word, what, run: pauseAndRun }];
  });
  return [
    ...acts,
    { key: 'p', word: 'story', what: 'story on/off', run: () => scenario.toggle() },
    { key: '?', word: 'help', what: 'help', run: help },
    { key: 'q', word: 'quit', what: 'quit', run: quit },
  ];
}

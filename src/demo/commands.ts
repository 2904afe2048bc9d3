/** The commands of a visitor: a key on a terminal, a word on a line of its own elsewhere. */
import type { Actions } from './actions.js';
import type { Scenario } from './scenario.js';

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
  say: (text: string) => void;
}

export function commandsOf({ actions, scenario, quit, help, say }: CommandParts): Command[] {
  const act = (key: string, word: string, what: string, action: () => Promise<void>): Command => ({
    key,
    word,
    what,
    run: () => {
      scenario.pause();
      return action();
    },
  });
  const toggleStory = () => {
    scenario.toggle();
    say(scenario.isOn ? 'story on' : 'story off: only calls and records continue');
  };
  return [
    act('k', 'kill-leader', 'kill the leader', () => actions.endLeader('kill')),
    act('s', 'stop-leader', 'stop the leader', () => actions.endLeader('stop')),
    act('r', 'roll', 'roll the agents', () => actions.roll()),
    act('c', 'crash', 'crash an agent', () => actions.crash()),
    act('d', 'delete', 'delete an agent', () => actions.delete()),
    act('n', 'drain', 'drain an agent', () => actions.drain()),
    act('f', 'lose-redis', 'flush Redis', () => actions.flushStore()),
    act('x', 'pause-redis', 'pause Redis', () => actions.pauseStore()),
    act('w', 'kill-worker', 'kill a worker', () => actions.killWorker()),
    act('a', 'api', 'API server down/up', () => actions.toggleApi()),
    act('u', 'rush', 'rush hour', () => actions.rush()),
    act('e', 'exhaust', 'exhaust a pool', () => actions.exhaust()),
    { key: 'p', word: 'story', what: 'story on/off', run: toggleStory },
    { key: '?', word: 'help', what: 'help', run: help },
    { key: 'q', word: 'quit', what: 'quit', run: quit },
  ];
}

export function findCommand(commands: readonly Command[], text: string): Command | undefined {
  return commands.find(({ key, word }) => text === key || text === word);
}

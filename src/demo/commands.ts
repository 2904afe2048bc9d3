/** What a visitor can do, by a key on a terminal or by a word on a line of its own elsewhere. */
import type { Deeds } from './actions.js';
import type { Story } from './scenario.js';

export interface Command {
  key: string;
  word: string;
  what: string;
  run: () => Promise<void> | void;
}

export interface CommandParts {
  deeds: Deeds;
  story: Story;
  quit: () => void;
  help: () => void;
  say: (text: string) => void;
}

export function commandsOf({ deeds, story, quit, help, say }: CommandParts): Command[] {
  const act = (key: string, word: string, what: string, deed: () => Promise<void>): Command => ({
    key,
    word,
    what,
    run: () => {
      story.giveWay();
      return deed();
    },
  });
  return [
    act('k', 'kill-leader', 'kill the leader', () => deeds.endLeader('kill')),
    act('s', 'stop-leader', 'stop the leader', () => deeds.endLeader('stop')),
    act('r', 'roll', 'roll the agents', () => deeds.roll()),
    act('c', 'crash', 'crash an agent', () => deeds.crash()),
    act('d', 'delete', 'delete an agent', () => deeds.remove()),
    act('n', 'drain', 'drain an agent', () => deeds.drain()),
    act('f', 'lose-redis', 'flush Redis', () => deeds.loseStore()),
    act('x', 'pause-redis', 'pause Redis', () => deeds.pauseStore()),
    act('w', 'kill-worker', 'kill a worker', () => deeds.killWorker()),
    act('a', 'api', 'API server down/up', () => deeds.switchApi()),
    act('u', 'rush', 'rush hour', () => deeds.rush()),
    act('e', 'exhaust', 'exhaust a pool', () => deeds.exhaust()),
    {
      key: 'p',
      word: 'story',
      what: 'story on/off',
      run: () => {
        story.toggle();
        say(story.tells ? 'the story goes on' : 'the story rests: only calls and records come by themselves');
      },
    },
    { key: '?', word: 'help', what: 'help', run: help },
    { key: 'q', word: 'quit', what: 'quit', run: quit },
  ];
}

export function findCommand(commands: readonly Command[], text: string): Command | undefined {
  return commands.find(({ key, word }) => text === key || text === word);
}

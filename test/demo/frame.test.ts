import { describe, expect, test } from 'vitest';
import { introduction } from '../../src/demo/banner.js';
import { type CommandParts, commandsOf } from '../../src/demo/commands.js';
import { drawCell, type FrameOptions, frame, helpPage, legend } from '../../src/demo/frame.js';
import { Ledger } from '../../src/demo/ledger.js';
import type { Line } from '../../src/demo/lines.js';
import type { RecordsView } from '../../src/demo/records/plane.js';
import { agentCount, sets } from '../../src/demo/scenery.js';
import type { View } from '../../src/demo/view.js';
import { paintColours, plain } from '../../src/terminal/text.js';

const numbers = { type: 'exclusive', assigned: 6, available: 4, active_calls: 2, capacity: 6 };

const records: RecordsView = {
  leftOut: undefined,
  isOpen: true,
  sitemaps: { queued: 3, running: 1, done: 12, failed: 0, latest: 'linden-bakery.example/sitemap.xml' },
  pages: { queued: 40, running: 6, done: 310, failed: 2, latest: 'linden-bakery.example/team: Team' },
  workers: [
    { name: 'worker-1', state: 'down', records: 0 },
    { name: 'worker-2', state: 'up', records: 6 },
  ],
  stuck: 4,
  twice: 0,
  returned: 0,
  kills: 1,
};

function view(change: Partial<View> = {}): View {
  return {
    routers: [
      { name: 'router-1', state: 'down', leads: false },
      { name: 'router-2', state: 'up', leads: true },
      { name: 'router-3', state: 'up', leads: false },
    ],
    storeAnswers: true,
    apiAnswers: true,
    pools: sets.map((set) => ({
      set,
      cells: Array.from({ length: set.replicas }, (_, i) =>
        i === 0 ? { state: 'busy', calls: 2 } : { state: 'free', calls: 0 },
      ),
      numbers,
    })),
    roll: { version: 1, done: agentCount, total: agentCount, isRolling: false },
    ledger: new Ledger(),
    records,
    ...change,
  };
}

const line = (text: string): Line => ({ at: new Date(0).toISOString(), kind: 'router', text });
const keys = [
  { key: 'k', what: 'kill the leader' },
  { key: 'q', what: 'quit' },
];

function draw(
  change: Partial<View> = {},
  size = { columns: 100, rows: 40 },
  colours = false,
  more: Partial<FrameOptions> = {},
): string[] {
  return frame({
    ...size,
    view: view(change),
    url: 'http://127.0.0.1:8080',
    elapsedMs: 61_000,
    storyTells: true,
    lines: Array.from({ length: 100 }, (_, i) => line(`happening ${i}`)),
    latestCall: undefined,
    keys,
    paint: colours ? paintColours : plain,
    ...more,
  });
}

const seen = (text: string) => text.replaceAll(/\u001b\[\d+m/g, '');

describe('the picture on the stage', () => {
  test('fits into every terminal, with the newest line and the keys in it', () => {
    for (const size of [
      { columns: 80, rows: 24 },
      { columns: 200, rows: 60 },
      { columns: 40, rows: 20 },
    ]) {
      const picture = draw({}, size, true).map(seen);
      expect(picture.length).toBeLessThanOrEqual(size.rows);
      expect(Math.max(...picture.map((one) => [...one].length))).toBeLessThan(size.columns);
      expect(picture.join('\n')).toContain('happening 99');
      expect(picture.join('\n')).toContain('q quit');
    }
  });

  test('cuts off nothing that matters on 80 columns and 24 rows', () => {
    const ledger = Object.assign(new Ledger(), {
      began: 1300,
      served: 1234,
      lost: 12,
      busy: 34,
      unanswered: 5,
    });
    const change = { ledger, records: { ...records, stuck: 12 } };
    const last = line(
      'all 7 records of worker-2 are finished by worker-1 and worker-2; finished twice since the start: 0',
    );
    const commands = commandsOf({} as CommandParts);
    const picture = draw(change, { columns: 80, rows: 24 }, true, { keys: commands, lines: [last] }).map(
      seen,
    );
    expect(picture.length).toBeLessThanOrEqual(24);
    const text = picture.join('\n');
    for (const { what } of commands) expect(text).toContain(what);
    for (const { name } of sets) expect(text).toMatch(new RegExp(`^ ${name} .*available$`, 'm'));
    for (const part of [
      'http://127.0.0.1:8080/',
      '12 lost with a crashed agent',
      '34 rejected, all busy',
      '5 unanswered',
      '12 stuck',
      '0 finished twice',
      '✕ crashed',
      'since the start: 0',
    ])
      expect(text).toContain(part);
  });

  test('explains every sign that it draws', () => {
    const states = ['free', 'busy', 'draining', 'starting', 'crashed'] as const;
    const drawn = states.flatMap((state) => [0, 1].map((calls) => drawCell({ state, calls }, false, plain)));
    for (const sign of drawn) expect(legend(plain)).toContain(sign);
    expect(draw().join('\n')).toContain(legend(plain));
    expect(introduction(plain).join('\n')).toContain(legend(plain));
  });

  test('names its address only when it answers', () => {
    const picture = draw({}, undefined, false, { url: undefined }).join('\n');
    expect(picture).not.toContain('http:');
    expect(picture).toContain('starting');
  });

  test('the help page fits 80 columns and 24 rows, and names every key', () => {
    const commands = commandsOf({} as CommandParts);
    const page = helpPage({
      keys: commands,
      url: 'http://127.0.0.1:8080',
      columns: 80,
      rows: 99,
      paint: plain,
    });
    expect(page.length).toBeLessThanOrEqual(24);
    for (const end of ['rows are dated back 1 to 3 hours,', 'in another terminal', 'closes this page.'])
      expect(page.some((one) => one.endsWith(end))).toBe(true);
    for (const { key, what } of commands) expect(page.join('\n')).toContain(`${key} ${what}`);
  });

  test('shows who leads, who is down, and how many calls a shared agent has', () => {
    const picture = draw().join('\n');
    expect(picture).toMatch(/✕ router-1 ended +■ router-2 leader +□ router-3/);
    expect(picture).toMatch(/gold +■ □ □ □ □ □ /);
    expect(picture).toMatch(/basic +2 □ □ □ □ /);
  });

  test('shows a roll while it runs, and unreachable dependencies', () => {
    expect(draw().join('\n')).not.toContain('rolling');
    const roll = { version: 2, done: 7, total: 20, isRolling: true };
    const picture = draw({ roll, storeAnswers: false, apiAnswers: false }).join('\n');
    expect(picture).toContain('rolling: 7 of 20');
    expect(picture).toMatch(/✕ Redis: down +✕ Kubernetes API: down/);
  });

  test('a cut call is the one thing that is red', () => {
    const ledger = Object.assign(new Ledger(), { began: 1, cut: 1 });
    const red = (change: Partial<View>) => draw(change, { columns: 100, rows: 40 }, true).join('\n');
    expect(red({ ledger })).toContain('\u001b[31m1 cut');
    expect(red({})).toContain('\u001b[32m0 cut');
  });

  test('shows the progress of records, their workers, and stuck records', () => {
    const picture = draw({}, { columns: 80, rows: 24 }).join('\n');
    expect(picture).toMatch(/sitemaps +3 queued {2}1 running {2}12 done {2}0 failed +linden-bakery/);
    expect(picture).toMatch(/pages +40 queued {2}6 running {2}310 done {2}2 failed +linden-bakery/);
    expect(picture).toMatch(/workers +✕ worker-1 ended +■ worker-2 holds 6 +4 stuck {2}0 finished twice/);
    expect(picture).toMatch(/backed by .*■ PostgreSQL/);
  });

  test('a record finished twice is red, a stuck one yellow', () => {
    const drawn = (change: Partial<RecordsView>) =>
      draw({ records: { ...records, ...change } }, { columns: 100, rows: 40 }, true).join('\n');
    expect(drawn({ twice: 1 })).toContain('\u001b[31m1 finished twice');
    expect(drawn({})).toContain('\u001b[32m0 finished twice');
    expect(drawn({})).toContain('\u001b[33m4 stuck');
    expect(drawn({ stuck: 0 })).toContain('\u001b[32m0 stuck');
  });

  test('says why there are no records, or that they are on their way', () => {
    const drawn = (change: Partial<RecordsView>) => draw({ records: { ...records, ...change } }).join('\n');
    const without = drawn({ leftOut: 'DATABASE_URL is off' });
    expect(without).toContain('records   left out: DATABASE_URL is off');
    expect(without).not.toMatch(/PostgreSQL|worker-/);
    expect(drawn({ isOpen: false, workers: [] })).toContain('records   PostgreSQL is starting');
  });
});

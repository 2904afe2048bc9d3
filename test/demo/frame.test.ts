import { describe, expect, test } from 'vitest';
import { actionsOf, commandsOf } from '../../src/demo/actions.js';
import { CallCounts } from '../../src/demo/callers.js';
import { introduction } from '../../src/demo/display.js';
import { drawCell, type FrameOptions, frame, helpPage, legend, type View } from '../../src/demo/frame.js';
import type { Line } from '../../src/demo/lines.js';
import type { RecordsView } from '../../src/demo/records/plane.js';
import type { Scenario } from '../../src/demo/scenario.js';
import { agentCount, sets } from '../../src/demo/setup.js';
import { withoutColours } from '../../src/terminal/text.js';

const numbers = { type: 'exclusive', assigned: 6, available: 4, active_calls: 2, capacity: 6 };

const records: RecordsView = {
  disabledReason: undefined,
  isOpen: true,
  sitemaps: { queued: 3, running: 1, done: 12, failed: 0, latest: 'linden-bakery.example/sitemap.xml' },
  pages: { queued: 40, running: 6, done: 310, failed: 2, latest: 'linden-bakery.example/team: Team' },
  workers: [
    { name: 'worker-1', state: 'down', records: 0 },
    { name: 'worker-2', state: 'up', records: 6 },
  ],
  stuck: 4,
  twice: 0,
  requeued: 0,
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
      cells: Array.from({ length: set.replicas }, (_, i) => ({ state: 'ready', calls: i === 0 ? 2 : 0 })),
      numbers,
    })),
    roll: { version: 1, updated: agentCount, isRolling: false },
    calls: new CallCounts(),
    records,
    ...change,
  };
}

const line = (text: string): Line => ({ at: new Date(0).toISOString(), kind: 'router', text });
const commands = commandsOf(
  actionsOf({} as Parameters<typeof actionsOf>[0]),
  {} as Scenario,
  () => {},
  () => {},
);
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
  const picture = frame({
    ...size,
    view: view(change),
    url: 'http://127.0.0.1:8080',
    elapsedMs: 61_000,
    isStoryOn: true,
    lines: Array.from({ length: 100 }, (_, i) => line(`happening ${i}`)),
    latestCall: undefined,
    keys,
    ...more,
  });
  return colours ? picture : picture.map(withoutColours);
}

describe('the picture of the demo', () => {
  test('fits every terminal, with the newest line and the keys', () => {
    for (const size of [
      { columns: 80, rows: 24 },
      { columns: 200, rows: 60 },
      { columns: 40, rows: 20 },
    ]) {
      const picture = draw({}, size, true).map(withoutColours);
      expect(picture.length).toBeLessThanOrEqual(size.rows);
      expect(Math.max(...picture.map((one) => [...one].length))).toBeLessThan(size.columns);
      expect(picture.join('\n')).toContain('happening 99');
      expect(picture.join('\n')).toContain('q quit');
    }
  });

  test('shows everything at 80 columns and 24 rows', () => {
    const calls = Object.assign(new CallCounts(), {
      started: 1300,
      served: 1234,
      lost: 12,
      waiting: 7,
      busy: 34,
      unanswered: 5,
    });
    const change = { calls, records: { ...records, stuck: 12 } };
    const last = line(
      'all 7 records of worker-2 are finished by worker-1 and worker-2; finished twice since the start: 0',
    );
    const picture = draw(change, { columns: 80, rows: 24 }, true, { keys: commands, lines: [last] }).map(
      withoutColours,
    );
    expect(picture.length).toBeLessThanOrEqual(24);
    const text = picture.join('\n');
    for (const { what } of commands) expect(text).toContain(what);
    for (const { name } of sets) expect(text).toMatch(new RegExp(`^ ${name} .*available$`, 'm'));
    for (const part of [
      'http://127.0.0.1:8080/',
      '12 lost with a crashed agent',
      '7 waiting',
      '34 rejected, all busy',
      '5 unanswered',
      '12 stuck',
      '0 finished twice',
      '✕ crashed',
      'since the start: 0',
    ])
      expect(text).toContain(part);
  });

  test('has a legend for every symbol', () => {
    const states = ['ready', 'draining', 'starting', 'crashed'] as const;
    const drawn = states.flatMap((state) => [0, 1].map((calls) => drawCell({ state, calls }, false)));
    for (const sign of drawn) expect(legend()).toContain(sign);
    expect(draw().join('\n')).toContain(withoutColours(legend()));
    expect(introduction().join('\n')).toContain(legend());
  });

  test('shows its address only when it is ready', () => {
    const picture = draw({}, undefined, false, { url: undefined }).join('\n');
    expect(picture).not.toContain('http:');
    expect(picture).toContain('starting');
  });

  test('the help page fits 80 columns and 24 rows and lists every key', () => {
    const page = helpPage({
      keys: commands,
      url: 'http://127.0.0.1:8080',
      columns: 80,
      rows: 99,
    });
    expect(page.length).toBeLessThanOrEqual(24);
    for (const end of ['rows are dated back 1 to 3 hours,', 'in another terminal', 'closes this page.'])
      expect(page.some((one) => one.endsWith(end))).toBe(true);
    for (const { key, what } of commands) expect(withoutColours(page.join('\n'))).toContain(`${key} ${what}`);
  });

  test('shows the leader, stopped routers and the calls of shared agents', () => {
    const picture = draw().join('\n');
    expect(picture).toMatch(/✕ router-1 ended +■ router-2 leader +□ router-3/);
    expect(picture).toMatch(/gold +■ □ □ □ □ □ /);
    expect(picture).toMatch(/basic +2 □ □ □ □ /);
  });

  test('shows a running roll, and backends that are down', () => {
    expect(draw().join('\n')).not.toContain('rolling');
    const roll = { version: 2, updated: 7, isRolling: true };
    const picture = draw({ roll, storeAnswers: false, apiAnswers: false }).join('\n');
    expect(picture).toContain('rolling: 7 of 20');
    expect(picture).toMatch(/✕ Redis: down +✕ Kubernetes API: down/);
  });

  test('shows cut calls in red, zero in green', () => {
    const calls = Object.assign(new CallCounts(), { started: 1, cut: 1 });
    const red = (change: Partial<View>) => draw(change, { columns: 100, rows: 40 }, true).join('\n');
    expect(red({ calls })).toContain('\u001b[31m1 cut');
    expect(red({})).toContain('\u001b[32m0 cut');
  });

  test('shows counts, workers and stuck records', () => {
    const picture = draw({}, { columns: 80, rows: 24 }).join('\n');
    expect(picture).toMatch(/sitemaps +3 queued {2}1 running {2}12 done {2}0 failed +linden-bakery/);
    expect(picture).toMatch(/pages +40 queued {2}6 running {2}310 done {2}2 failed +linden-bakery/);
    expect(picture).toMatch(/workers +✕ worker-1 ended +■ worker-2 holds 6 +4 stuck {2}0 finished twice/);
    expect(picture).toMatch(/backed by .*■ PostgreSQL/);
  });

  test('shows records finished twice in red, stuck records in yellow, zero in green', () => {
    const drawn = (change: Partial<RecordsView>) =>
      draw({ records: { ...records, ...change } }, { columns: 100, rows: 40 }, true).join('\n');
    expect(drawn({ twice: 1 })).toContain('\u001b[31m1 finished twice');
    expect(drawn({})).toContain('\u001b[32m0 finished twice');
    expect(drawn({})).toContain('\u001b[33m4 stuck');
    expect(drawn({ stuck: 0 })).toContain('\u001b[32m0 stuck');
  });

  test('shows why records are disabled, or that PostgreSQL is starting', () => {
    const drawn = (change: Partial<RecordsView>) => draw({ records: { ...records, ...change } }).join('\n');
    const without = drawn({ disabledReason: 'DATABASE_URL is off' });
    expect(without).toContain('records   disabled: DATABASE_URL is off');
    expect(without).not.toMatch(/PostgreSQL|worker-/);
    expect(drawn({ isOpen: false, workers: [] })).toContain('records   PostgreSQL is starting');
  });
});

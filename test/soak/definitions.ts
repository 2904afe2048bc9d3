/** Which series a soak has, and how the picture groups them. */
import { keyTable } from '../../src/calls/store/key-table.mjs';
import type { SeriesDefinition } from './series.js';

export interface Chart {
  title: string;
  series: (SeriesDefinition & { name: string })[];
}

export const routerNames = ['router-0', 'router-1'] as const;
const perRouter = (suffix: string, what: string, rest: Omit<SeriesDefinition, 'key' | 'title'>) =>
  routerNames.map((name) => ({ key: `${name}.${suffix}`, title: `${name}: ${what}`, name, ...rest }));
const one = (key: string, title: string, name: string, rest: Omit<SeriesDefinition, 'key' | 'title'>) => ({
  ...{ key, title, name },
  ...rest,
});

export const charts: readonly Chart[] = [
  {
    title: 'Resident memory',
    series: [
      ...perRouter('rss', 'resident memory', { unit: 'bytes' }),
      one('records.rss', 'records process: resident memory', 'records', { unit: 'bytes' }),
      one('redis.rss', 'Redis: resident memory', 'Redis', { unit: 'bytes' }),
    ],
  },
  {
    title: 'Heap in use',
    series: [
      ...perRouter('heap', 'heap after collections', { unit: 'bytes', block: 'min' }),
      one('records.heap', 'records process: heap after collections', 'records', {
        unit: 'bytes',
        block: 'min',
      }),
    ],
  },
  {
    title: 'Memory of Redis',
    series: [
      one('redis.used', 'Redis: used_memory', 'used', { unit: 'bytes' }),
      one('redis.used.rest', 'Redis: used_memory without the history stream', 'without history', {
        unit: 'bytes',
      }),
    ],
  },
  {
    title: 'Keys',
    series: [
      one('keys', 'keys in Redis', 'all', { unit: 'count' }),
      one('keys.call', 'keys of calls', 'calls', { unit: 'count' }),
    ],
  },
  {
    title: 'Streams',
    series: [
      one('events', 'events', 'events', { unit: 'count', cap: 50_000 }),
      one('journal', 'journal', 'journal', { unit: 'count', cap: 10_000 }),
      one('history', 'history', 'history', { unit: 'count', cap: 11_000 }),
    ],
  },
  {
    title: 'Time of scripts in Redis',
    series: [
      one('script.p50', 'scripts: p50', 'p50', { unit: 'us' }),
      one('script.p99', 'scripts: p99', 'p99', { unit: 'us' }),
      one('script.p99.9', 'scripts: p99.9', 'p99.9', { unit: 'us' }),
    ],
  },
  {
    title: 'Tables in PostgreSQL',
    series: [
      one('claims.bytes', 'claims: size', 'claims', { unit: 'bytes' }),
      one('jobs.bytes', "the team's table: size", "team's table", { unit: 'bytes' }),
    ],
  },
  {
    title: 'Dead tuples',
    series: [
      one('claims.dead', 'claims: dead tuples', 'claims', { unit: 'count' }),
      one('jobs.dead', "the team's table: dead tuples", "team's table", { unit: 'count' }),
    ],
  },
  {
    title: 'Open file descriptors',
    series: [
      ...perRouter('fds', 'open file descriptors', { unit: 'count' }),
      one('records.fds', 'records process: open file descriptors', 'records', { unit: 'count' }),
      one('redis.fds', 'Redis: open file descriptors', 'Redis', { unit: 'count' }),
    ],
  },
  { title: 'Event loop lag, p99', series: perRouter('lag', 'event loop lag p99', { unit: 'ms' }) },
  {
    title: 'Calls',
    series: [
      one('calls.live', 'live calls', 'live', { unit: 'count' }),
      one('calls.waiting', 'waiting calls', 'waiting', { unit: 'count' }),
    ],
  },
  {
    title: 'CPU of everything',
    series: [one('cpu', 'CPU, of one core', 'all processes', { unit: 'percent' })],
  },
];

/** The series of the pictures, then the keys of every other kind. */
export const definitions: readonly SeriesDefinition[] = [
  ...charts.flatMap(({ series }) => series),
  ...Object.keys(keyTable)
    .filter((kind) => kind !== 'call')
    .map((kind) => ({ key: `keys.${kind}`, title: `keys of kind ${kind}`, unit: 'count' as const })),
];

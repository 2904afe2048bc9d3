/**
 * What one process writes: WAL and dead tuples of 20,000 records between two checkpoints. Neither depends on other load. With
 * fsync on the WAL includes full-page images, the first change of each page after the checkpoint; with fsync off it does not.
 */
import { type Figure, number } from '../support/report.js';
import type { RecordsBench } from './bench.js';
import { contenders, ours } from './contenders.js';
import { alternate, medianOf } from './throughput.js';

const jobs = 20_000;

export async function wal(bench: RecordsBench): Promise<Figure[]> {
  const all = [
    ...contenders(bench.pool, bench.databaseUrl, bench.admin).filter(({ tables }) => tables.length > 0),
    ours(bench.pool, 'default_fillfactor', 'Smart Router, default fillfactor', 100),
  ];
  const runs = await alternate(bench, all, { jobs, rounds: bench.quick ? 1 : 3, processes: 1 });
  const note = (what: 'walBytes' | 'deadTuples') =>
    all
      .filter(({ name }) => name !== 'ours')
      .map(({ name }) => `${name.replace('_', ' ')} ${number(medianOf(runs, name, what))}`)
      .join(', ');
  return [
    {
      id: 'wal',
      label: `WAL per record, ${bench.isDurable ? 'with' : 'without'} full-page images`,
      value: medianOf(runs, 'ours', 'walBytes'),
      unit: 'bytes',
      // Full-page images depend on how many records are finished between two checkpoints.
      ...(bench.isDurable ? {} : { target: { below: 701 } }),
      note: note('walBytes'),
    },
    {
      id: 'dead',
      label: 'dead tuples per record',
      value: medianOf(runs, 'ours', 'deadTuples'),
      unit: '',
      // Two of the record's own row, and a part of one per claim.
      target: { below: 2.05 },
      note: note('deadTuples'),
    },
  ];
}

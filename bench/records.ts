/**
 * Records: throughput, CPU and WAL against graphile-worker, pg-boss and BullMQ; latency; recovery of a million stuck rows
 */
import { withPostgres } from './records/bench.js';
import { latency } from './records/latency.js';
import { limits } from './records/limits.js';
import { recovery } from './records/recovery.js';
import { throughput } from './records/throughput.js';
import { wal } from './records/wal.js';
import { runArea } from './support/run.js';

await runArea('records', {
  throughput: withPostgres(throughput),
  wal: withPostgres(wal),
  limits: withPostgres(limits),
  latency: withPostgres(latency),
  recovery: withPostgres(recovery),
});

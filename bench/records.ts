/**
 * Records: throughput against graphile-worker, pg-boss and BullMQ; latency; recovery of a million stuck rows
 */
import { withPostgres } from './records/bench.js';
import { latency } from './records/latency.js';
import { limits } from './records/limits.js';
import { recovery } from './records/recovery.js';
import { throughput } from './records/throughput.js';
import { runArea } from './support/run.js';

await runArea('records', {
  throughput: withPostgres(throughput),
  limits: withPostgres(limits),
  latency: withPostgres(latency),
  recovery: withPostgres(recovery),
});

/**
 * Allocate, release, hand-over and sweep: against the Go router's commands, over HTTP, in large pools; time and memory
 */
import { handOver } from './calls/hand-over.js';
import { http } from './calls/http.js';
import { latency } from './calls/latency.js';
import { memory } from './calls/memory.js';
import { pairs } from './calls/pairs.js';
import { draining, poolSize } from './calls/pool.js';
import { replication } from './calls/replication.js';
import { sweep } from './calls/sweep.js';
import { runArea } from './support/run.js';

await runArea('calls', { pairs, http, poolSize, draining, sweep, memory, latency, handOver, replication });

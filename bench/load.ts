/**
 * Calls at random times: the highest rate of one router, latency below it, behaviour above it; two workers against one
 */
import { openLoop } from './load/open-loop.js';
import { workers } from './load/workers.js';
import { runArea } from './support/run.js';

await runArea('load', { openLoop, workers });

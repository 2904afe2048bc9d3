/**
 * Calls at random times: the highest rate of one router, latency below it, behaviour above it
 */
import { openLoop } from './load/open-loop.js';
import { runArea } from './support/run.js';

await runArea('load', { openLoop });

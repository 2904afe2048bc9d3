/**
 * Calls that come by chance, at a rate: the highest one router takes, waiting times below it, what happens beyond it
 */
import { openLoop } from './load/open-loop.js';
import { runArea } from './support/run.js';

await runArea('load', { openLoop });

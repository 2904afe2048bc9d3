/**
 * 5,000 pods: full sync, time of a change from the API server to the pool, memory of the router
 */
import { leaderMemory, manyPods } from './pool/many-pods.js';
import { runArea } from './support/run.js';

await runArea('pool', { manyPods, leaderMemory });

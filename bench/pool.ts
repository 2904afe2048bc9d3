/**
 * 5,000 pods: full sync, changes on their way from the API server to the pool, memory of the router
 */
import { leaderMemory, manyPods } from './pool/many-pods.js';
import { runArea } from './support/run.js';

await runArea('pool', { manyPods, leaderMemory });

/**
 * 5,000 pods: full sync, time of a change from the API server to the pool, memory of the router
 */
import { manyPods } from './pool/many-pods.js';
import { leaderMemory } from './pool/memory.js';
import { runArea } from './support/run.js';

await runArea('pool', { manyPods, leaderMemory });

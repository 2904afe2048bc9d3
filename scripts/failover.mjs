// Measures failovers of Redis with real processes: `npm run failover -- --rounds 100`.
import { runTestProgram } from './test-program.mjs';

runTestProgram('failover');

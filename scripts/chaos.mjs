// Runs chaos with real processes: `npm run chaos -- --minutes 5`.
import { runTestProgram } from './test-program.mjs';

runTestProgram('chaos');

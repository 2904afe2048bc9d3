/**
 * A separate process: the router as `smart-router serve` starts it, leading at once, configured by its environment. On
 * request it reports what it has used.
 */
import { loadConfig } from '../../src/config/config.js';
import { limitGarbage } from '../../src/main/processes.js';
import { startRouter } from '../../src/main/router.js';
import { answerSpent } from './server-process.js';

limitGarbage();
const { url } = await startRouter(loadConfig(process.env));
process.send?.({ url });
answerSpent();

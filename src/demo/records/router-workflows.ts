/**
 * What the routers of the demo load as their RECORDS_MODULE. They work on records too, one at a time: most are left to
 * the workers, which are there to be killed.
 */
import { seconds } from '../setup.js';
import { demoWorkflows } from './workflows.js';

const one = { batchSize: 1, concurrency: 1 };

export const workflows = demoWorkflows({
  silenceMs: seconds.siteSilence * 1000,
  sitemaps: one,
  pages: one,
});

/**
 * A separate process: the router as `smart-router serve` starts it, leading at once, configured by its environment. On
 * request it reports its current and its peak memory.
 */
import { loadConfig } from '../../src/config/config.js';
import { startRouter } from '../../src/main/router.js';

await startRouter(loadConfig(process.env));
process.send?.({ ready: true });
process.on('message', () => {
  const peak = process.resourceUsage().maxRSS * 1024;
  process.send?.({ rss: process.memoryUsage().rss, peak });
});
process.once('disconnect', () => process.exit());

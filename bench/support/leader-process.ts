/**
 * A process of its own: the router as `smart-router serve` starts it, leading at once. Everything comes from its
 * environment. Asked for its memory, it tells how much it holds, and the most it held.
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

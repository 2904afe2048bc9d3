/**
 * Loaded into every router that the demo starts: it ends with the demo, also when the demo is killed and can tell
 * nobody. What ties them is the channel between parent and child, which breaks with either of them.
 */
import { isMainThread } from 'node:worker_threads';

const end = () => process.kill(process.pid, 'SIGKILL');
// A thread of the router loads this as well, and has no channel of its own.
if (isMainThread) {
  process.once('disconnect', end);
  // On a busy machine it may have broken before this was loaded, and nobody will say so again.
  if (!process.connected) end();
  // It watches; it is no reason to stay alive.
  process.channel?.unref();
}

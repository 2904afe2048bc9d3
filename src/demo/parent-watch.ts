/**
 * Ends this process with the demo that started it, also when the demo is killed: the IPC channel between parent and
 * child closes with either of them.
 */
import { isMainThread } from 'node:worker_threads';

const end = () => process.kill(process.pid, 'SIGKILL');
// Threads of a router load this too and have no channel.
if (isMainThread) {
  process.once('disconnect', end);
  // On a busy machine the channel may have closed before this was loaded; no event follows then.
  if (!process.connected) end();
  process.channel?.unref();
}

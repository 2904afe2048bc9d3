/**
 * Loaded into every router that the demo starts: it ends with the demo, also when the demo is killed and can tell
 * nobody. What ties them is the channel between parent and child, which breaks with either of them.
 */
process.once('disconnect', () => process.kill(process.pid, 'SIGKILL'));
// It watches; it is no reason to stay alive.
process.channel?.unref();

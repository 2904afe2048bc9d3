// Loaded before a router: its second worker cannot be forked (`?throws`), or is killed as it starts (`?dies`).
import cluster from 'node:cluster';

const how = new URL(import.meta.url).search.slice(1);
if (how === 'throws' && cluster.isPrimary) {
  const fork = cluster.fork.bind(cluster);
  let forks = 0;
  cluster.fork = (env) => {
    forks += 1;
    if (forks === 2) throw new Error('no second worker');
    return fork(env);
  };
}
if (how === 'dies' && cluster.worker?.id === 2) process.kill(process.pid, 'SIGKILL');

/**
 * Routers that were broken on purpose, in TypeScript: what no single script can show. Above all an error that is read as
 * "not there", which ends calls that live.
 */
import type { Reply } from '../../src/calls/store/connection.js';
import { brokenText } from '../support/broken-scripts.js';
import type { Fault } from './faults.js';
import type { Rewire } from './router.js';

export interface BrokenRouter {
  broken: string;
  /** Instead of those of a seed, where it takes several things at once that seldom come together. */
  faults?: readonly Fault[];
  rewire: Rewire;
}

const lasting = (kind: string, place: number, atSeconds: number, seconds: number): Fault => ({
  ...{ kind, place, atMs: Math.round(atSeconds * 1000), forMs: Math.round(seconds * 1000) },
});
const once = (kind: string, place: number, atSeconds: number) => lasting(kind, place, atSeconds, 0.001);

/**
 * Two replicas lead for a moment: the Lease is deleted, and a starting replica takes it before the leader notices. Then
 * pods come and go, so that both have something to write. (Not a whole number of sweeps apart: those tell the leader.) The
 * first write that is refused ends the older term, so half of the times begin with a removal, half with a registration.
 */
export const twoLeaders: readonly Fault[] = [60, 97, 131, 168, 205, 243].flatMap((s, i) => [
  // The leader is not among the replicas that are restarted.
  ...(i % 2 === 0 ? [0, 1] : [2]).map((place) => lasting('a router is killed', place, s - 3, 3)),
  once('the Lease is deleted', -1, s - 0.005),
  ...[0, 2, 4].map((place) => once('a container restarts', place, s + (i < 3 ? 0.8 : 0.05) + place / 4)),
  ...[1, 3, 5].map((place) => once('a pod is lost', place, s - (i < 3 ? 0.6 : -0.6) + place / 5)),
]);

export const brokenRouters: readonly BrokenRouter[] = [
  {
    broken: 'a list that failed half way counts as whole',
    faults: [
      lasting('the cluster answers with errors', -1, 60, 60),
      ...[62, 70, 78, 86, 94].map((s) => once('watches are too old', -1, s)),
    ],
    rewire: ({ source, cluster }) => {
      const list = source.list.bind(source);
      source.list = (signal) =>
        list(signal).catch(() => ({ pods: cluster.pods.slice(3), version: cluster.version }));
    },
  },
  {
    broken: 'a look for a successor that failed counts as none',
    // The pod is replaced unnoticed and gets a call; when the watch reports its end, the cluster replies with errors.
    faults: [
      lasting('the cluster stops answering', -1, 60, 40),
      ...[1, 2, 4].map((place) => once('a pod is lost', place, 60 + place)),
      lasting('many call at once', -1, 70, 20),
      lasting('the cluster answers with errors', -1, 100.001, 2),
    ],
    rewire: ({ source }) => {
      const read = source.read?.bind(source);
      source.read = async (name, signal) => read?.(name, signal).catch(() => undefined);
    },
  },
  {
    broken: 'a store that does not answer counts as one without the call',
    rewire: ({ connection }) => {
      const run = connection.run.bind(connection);
      connection.run = (name, args, operation) =>
        run(name, args, operation).catch((error: unknown): Reply => {
          if (name === 'renew') return ['call_not_found'];
          if (name !== 'report') throw error;
          const sids = args.slice(6).map(String);
          return ['ok', [], [], [], sids, [], connection.clock.now()];
        });
    },
  },
  {
    broken: 'drain in two steps: the mark, then the place among the available',
    faults: [
      ...[0, 1, 2].map((place) => lasting('the store is slow to reach', place, 20, 250)),
      lasting('many call at once', -1, 20, 250),
      ...[30, 70, 110, 150, 190, 230].flatMap((s) =>
        [0, 1, 2, 3, 4, 5].map((place) => lasting('a pod is drained', place, s + place, 25)),
      ),
    ],
    rewire: ({ connection }) => {
      const run = connection.run.bind(connection);
      const mark = brokenText({
        script: 'drain',
        line: 'local _, load = settle(pod)',
        becomes: 'local load = load_of(pod)',
      });
      connection.run = async (name, args, operation) => {
        if (name === 'drain')
          await connection.command(name, (client) => client.eval(mark, 1, connection.keyPrefix, '', ...args));
        return run(name, args, operation);
      };
    },
  },
];

/** The chart's Roles grant exactly the rights that a router uses: a real router with these rules. */
import { expect, it, onTestFinished } from 'vitest';
import type { PolicyRule } from '../support/cluster.js';
import { describeOneEngine } from '../support/engines.js';
import { openFleet } from '../support/fleet.js';
import { registerGhosts } from '../support/held-removals.js';
import { until } from '../support/until.js';
import { describeWith, render } from './manifests.js';

describeWith('helm', 'the Roles of the chart', () => {
  describeOneEngine('Roles', (engine) => {
    it('let a router elect, renew, list and watch, and it uses every verb', async () => {
      const manifests = render('minimal');
      const rules = manifests
        .filter(({ kind }) => kind === 'Role')
        .flatMap((role) => role.rules as PolicyRule[]);
      const lease = rules.flatMap(({ resourceNames = [] }) => resourceNames);
      expect(lease).toHaveLength(1);
      const fleet = await openFleet(engine.url, { rules, bookmarkIntervalMs: 200 });
      fleet.pods('agent-0');
      const env = { LEADER_ELECTION_LOCK_NAME: String(lease[0]) };
      const first = await fleet.startHere('r-0', env);
      const second = await fleet.startHere('r-1', env);
      onTestFinished(() => first.stop());
      const leads = async (router: typeof first) => (await router.get('/status')).body.is_leader === true;
      await until(async () => (await leads(first)) || (await leads(second)), 'one leads');
      await until(
        async () => (await engine.redis.scard('voice:pool:gold:available')) === 1,
        'pods are known',
      );
      fleet.pods('agent-1');
      await until(async () => (await engine.redis.scard('voice:pool:gold:available')) === 2, 'watched');
      await until(() => fleet.cluster.requests.count({ verb: 'update', resource: 'leases' }) > 1, 'renewed');
      // A list that misses most pods: each is looked up by name.
      await registerGhosts(first);
      await until(() => fleet.cluster.requests.count({ verb: 'get', resource: 'pods' }) > 0, 'looked up');
      await until(async () => (await engine.redis.scard('voice:pool:basic:assigned')) === 0, 'removed');

      const granted = rules.flatMap(({ verbs, resources }) =>
        verbs.flatMap((verb) => resources.map((resource) => `${verb} ${resource}`)),
      );
      expect(fleet.cluster.requests.used()).toEqual([...new Set(granted)].sort());
      const problems = [first, second].flatMap((router) =>
        router.logs().filter(({ level }) => level === 'error' || level === 'fatal'),
      );
      expect(problems).toEqual([]);
      expect(first.logs().some(({ level }) => level === 'info')).toBe(true);
    });
  });
});

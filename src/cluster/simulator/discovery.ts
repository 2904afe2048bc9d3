/** Health, version and discovery endpoints: enough for health checks and for `kubectl get` and `kubectl delete`. */
import { type Resource, resources, rootOf } from './resources.js';

/** Undefined when the path is unknown. */
export function discoveryOf(path: string, address: string): string | undefined {
  if (path === '/healthz' || path === '/readyz' || path === '/livez') return 'ok';
  const answer = objectOf(path, address);
  return answer && JSON.stringify(answer);
}

function objectOf(path: string, address: string): object | undefined {
  if (path === '/version') {
    return { major: '1', minor: '34', gitVersion: 'v1.34.0+smart-router-demo', platform: 'simulated' };
  }
  if (path === '/api') {
    const serverAddressByClientCIDRs = [{ clientCIDR: '0.0.0.0/0', serverAddress: address }];
    return { kind: 'APIVersions', versions: ['v1'], serverAddressByClientCIDRs };
  }
  const grouped = resources.filter(({ group }) => group !== '');
  if (path === '/apis') {
    return { kind: 'APIGroupList', apiVersion: 'v1', groups: grouped.map(groupOf) };
  }
  const group = grouped.find((resource) => path === `/apis/${resource.group}`);
  if (group) return { kind: 'APIGroup', apiVersion: 'v1', ...groupOf(group) };
  const there = resources.filter((resource) => path === rootOf(resource));
  const [first] = there;
  if (!first) return undefined;
  return {
    kind: 'APIResourceList',
    apiVersion: 'v1',
    groupVersion: first.apiVersion,
    resources: there.map(({ plural, singular, shortNames, kind }) => ({
      name: plural,
      singularName: singular,
      namespaced: true,
      kind,
      verbs: ['create', 'delete', 'get', 'list', 'update', 'watch'],
      ...(shortNames.length > 0 ? { shortNames } : {}),
    })),
  };
}

function groupOf({ group, apiVersion }: Resource): object {
  const version = { groupVersion: apiVersion, version: apiVersion.split('/').at(-1) };
  return { name: group, versions: [version], preferredVersion: version };
}

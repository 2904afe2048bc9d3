/**
 * The kinds of objects in the simulated cluster, the paths that name them, and the verbs of requests as RBAC sees them.
 * Clients can read all objects, delete pods, and write leases.
 */
import { badRequest, invalid } from './api-error.js';
import type { Draft } from './objects.js';

export interface Resource {
  /** As in paths and in the rules of a Role: `pods`. */
  readonly plural: string;
  readonly singular: string;
  readonly shortNames: readonly string[];
  readonly kind: string;
  /** Empty for the core group. */
  readonly group: string;
  readonly apiVersion: string;
  /** A deletion sets a deadline first. */
  readonly isGraceful?: boolean;
  /** A change of the spec increments metadata.generation. */
  readonly hasGeneration?: boolean;
  /** Checks what a client writes; undefined: clients cannot write it. */
  validate?(draft: Draft, name: string): void;
}

export const pods: Resource = {
  plural: 'pods',
  singular: 'pod',
  shortNames: ['po'],
  kind: 'Pod',
  group: '',
  apiVersion: 'v1',
  isGraceful: true,
};

/** The server requires exactly six digits: it rejects a JavaScript date, which has three. */
const microTime = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}(Z|[+-]\d{2}:\d{2})$/;

export const leases: Resource = {
  plural: 'leases',
  singular: 'lease',
  shortNames: [],
  kind: 'Lease',
  group: 'coordination.k8s.io',
  apiVersion: 'coordination.k8s.io/v1',
  validate({ spec = {} }, name) {
    const { holderIdentity, leaseDurationSeconds, leaseTransitions, acquireTime, renewTime } = spec as Record<
      string,
      unknown
    >;
    const undecodable = (what: string) =>
      badRequest(`Lease in version "v1" cannot be handled as a Lease: ${what}`);
    const wrongType = (field: string, type: string) =>
      undecodable(`json: cannot unmarshal into Go struct field LeaseSpec.spec.${field} of type ${type}`);
    if (holderIdentity != null && typeof holderIdentity !== 'string')
      throw wrongType('holderIdentity', 'string');
    for (const [field, value] of Object.entries({ leaseDurationSeconds, leaseTransitions }))
      if (value != null && !Number.isInteger(value)) throw wrongType(field, 'int32');
    for (const value of [acquireTime, renewTime]) {
      if (value == null) continue;
      if (typeof value !== 'string' || !microTime.test(value) || Number.isNaN(Date.parse(value)))
        throw undecodable(`parsing time ${JSON.stringify(value)} as "2006-01-02T15:04:05.000000Z07:00"`);
    }
    if (typeof leaseDurationSeconds === 'number' && leaseDurationSeconds <= 0)
      throw invalid('Lease', name, 'spec.leaseDurationSeconds', 'must be greater than 0');
    if (typeof leaseTransitions === 'number' && leaseTransitions < 0)
      throw invalid('Lease', name, 'spec.leaseTransitions', 'must be greater than or equal to 0');
  },
};

export const statefulSets: Resource = {
  plural: 'statefulsets',
  singular: 'statefulset',
  shortNames: ['sts'],
  kind: 'StatefulSet',
  group: 'apps',
  apiVersion: 'apps/v1',
  hasGeneration: true,
};

export const resources: readonly Resource[] = [pods, leases, statefulSets];

/** The root path of a resource: `/api/v1`, `/apis/apps/v1`. */
export const rootOf = ({ group, apiVersion }: Resource) =>
  group === '' ? `/api/${apiVersion}` : `/apis/${apiVersion}`;

export type Verb = 'get' | 'list' | 'watch' | 'create' | 'update' | 'delete';

const verbs: Readonly<Record<string, Verb>> = {
  POST: 'create',
  PUT: 'update',
  DELETE: 'delete',
};

/** Undefined when the method is not allowed there. */
export function verbOf(method: string, hasName: boolean, isWatch: boolean): Verb | undefined {
  if (method === 'GET' || method === 'HEAD') return hasName ? 'get' : isWatch ? 'watch' : 'list';
  const verb = verbs[method];
  return (verb === 'create') === hasName ? undefined : verb;
}

export interface Target {
  resource: Resource;
  namespace: string | undefined;
  name: string | undefined;
}

/** Undefined when the path belongs to no resource. */
export function targetOf(path: string): Target | undefined {
  const [, root, rest] = /^(\/api\/v1|\/apis\/[^/]+\/v1)\/(.+)$/.exec(path) ?? [];
  if (root === undefined || rest === undefined) return undefined;
  const parts = rest.split('/').map(decoded);
  const isNamespaced = parts[0] === 'namespaces' && parts.length > 2;
  const [plural, name, ...more] = isNamespaced ? parts.slice(2) : parts;
  const resource = resources.find((one) => one.plural === plural && root === rootOf(one));
  if (!resource || more.length > 0 || parts.includes('')) return undefined;
  // Across all namespaces only collections exist.
  if (!isNamespaced && name !== undefined) return undefined;
  return { resource, namespace: isNamespaced ? parts[1] : undefined, name };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return '';
  }
}

/** Health, version and discovery, enough for health checks and `kubectl get` and `delete`; undefined for other paths. */
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

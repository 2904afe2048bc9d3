/** The kinds of objects in the simulated cluster. Clients can read all of them, delete pods, and write leases. */
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

/** The kinds of object the simulator knows, and the rules of each that a client can run into. */
import { badRequest, invalid } from './api-error.js';
import { type Draft, isRecord } from './objects.js';

export interface Resource {
  /** As in paths and in the rules of a Role: `pods`. */
  readonly plural: string;
  readonly singular: string;
  readonly shortNames: readonly string[];
  readonly kind: string;
  /** Empty for the core group. */
  readonly group: string;
  readonly apiVersion: string;
  readonly subresources: readonly string[];
  /** A PUT without resourceVersion overwrites; where it is not allowed it is refused with 422. */
  readonly unconditionalUpdate: boolean;
  /** A PUT to a name that does not exist creates it. */
  readonly createOnUpdate: boolean;
  /** A change of the spec counts up metadata.generation. */
  readonly generations: boolean;
  readonly graceful: boolean;
  validate(draft: Draft, name: string): void;
}

export const pods: Resource = {
  plural: 'pods',
  singular: 'pod',
  shortNames: ['po'],
  kind: 'Pod',
  group: '',
  apiVersion: 'v1',
  subresources: ['status'],
  unconditionalUpdate: true,
  createOnUpdate: false,
  generations: false,
  graceful: true,
  validate({ spec }, name) {
    const { containers } = (spec ?? {}) as { containers?: unknown };
    if (!Array.isArray(containers) || containers.length === 0) {
      throw invalid('Pod', name, 'spec.containers', 'Required value');
    }
  },
};

/** The layout of the server requires exactly six digits: a JavaScript date has three and is refused. */
const microTime = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}(Z|[+-]\d{2}:\d{2})$/;

export const leases: Resource = {
  plural: 'leases',
  singular: 'lease',
  shortNames: [],
  kind: 'Lease',
  group: 'coordination.k8s.io',
  apiVersion: 'coordination.k8s.io/v1',
  subresources: [],
  unconditionalUpdate: false,
  createOnUpdate: true,
  generations: false,
  graceful: false,
  validate({ spec = {} }, name) {
    const { holderIdentity, leaseDurationSeconds, leaseTransitions, ...times } = spec as Record<
      string,
      unknown
    >;
    const undecodable = (what: string) =>
      badRequest(`Lease in version "v1" cannot be handled as a Lease: ${what}`);
    if (holderIdentity != null && typeof holderIdentity !== 'string') {
      throw undecodable(
        'json: cannot unmarshal into Go struct field LeaseSpec.spec.holderIdentity of type string',
      );
    }
    for (const [field, value] of Object.entries({ leaseDurationSeconds, leaseTransitions })) {
      if (value != null && !Number.isInteger(value)) {
        throw undecodable(
          `json: cannot unmarshal into Go struct field LeaseSpec.spec.${field} of type int32`,
        );
      }
    }
    for (const field of ['acquireTime', 'renewTime']) {
      const value = times[field];
      if (value == null) continue;
      if (typeof value !== 'string' || !microTime.test(value) || Number.isNaN(Date.parse(value))) {
        throw undecodable(`parsing time ${JSON.stringify(value)} as "2006-01-02T15:04:05.000000Z07:00"`);
      }
    }
    if (typeof leaseDurationSeconds === 'number' && leaseDurationSeconds <= 0) {
      throw invalid('Lease', name, 'spec.leaseDurationSeconds', 'must be greater than 0');
    }
    if (typeof leaseTransitions === 'number' && leaseTransitions < 0) {
      throw invalid('Lease', name, 'spec.leaseTransitions', 'must be greater than or equal to 0');
    }
  },
};

export const statefulSets: Resource = {
  plural: 'statefulsets',
  singular: 'statefulset',
  shortNames: ['sts'],
  kind: 'StatefulSet',
  group: 'apps',
  apiVersion: 'apps/v1',
  subresources: ['status'],
  unconditionalUpdate: true,
  createOnUpdate: false,
  generations: true,
  graceful: false,
  validate({ spec }, name) {
    const { replicas, template } = (spec ?? {}) as { replicas?: unknown; template?: unknown };
    if (replicas !== undefined && (!Number.isInteger(replicas) || (replicas as number) < 0)) {
      throw invalid('StatefulSet', name, 'spec.replicas', 'must be greater than or equal to 0');
    }
    if (!isRecord(template)) throw invalid('StatefulSet', name, 'spec.template', 'Required value');
  },
};

export const resources: readonly Resource[] = [pods, leases, statefulSets];

/** Where the API of a resource begins: `/api/v1`, `/apis/apps/v1`. */
export const rootOf = ({ group, apiVersion }: Resource) =>
  group === '' ? `/api/${apiVersion}` : `/apis/${apiVersion}`;

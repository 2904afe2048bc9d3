/**
 * The lock as a Kubernetes Lease (`coordination.k8s.io/v1`), in the fields of client-go, so that `kubectl get lease` shows
 * the leader, and routers of both kinds respect each other during a migration.
 *
 * Compare-and-swap is that of the API: a PUT with an outdated `resourceVersion` gets 409. A label added by hand costs the
 * leader one more read. Other fields of the object are kept.
 *
 * The Lease has no field for the writing process, so an annotation has it, together with its `renewTime`: client-go
 * rewrites the spec and keeps annotations, and its writes must not count as ours. A number that grows with every write
 * follows, because the API keeps the `resourceVersion` of an object that a PUT does not change, and a leader whose wall
 * clock repeats a time would look dead.
 */
import type { Clock } from '../clock.js';
import type { HeldRecord, LeaseLock, LockRecord } from './leadership.js';

interface LeaseRequest {
  method?: 'GET' | 'POST' | 'PUT';
  path: string;
  body?: unknown;
  timeoutMs: number;
}

/** What the lock needs of the Kubernetes API. Rejects with the HTTP status as `status`, if there was a response. */
interface LeaseApi {
  json<T>(request: LeaseRequest): Promise<T>;
}

export interface KubernetesLockOptions {
  api: LeaseApi;
  namespace: string;
  name: string;
  clock: Clock;
}

interface Lease {
  apiVersion: string;
  kind: string;
  metadata: {
    name: string;
    namespace: string;
    resourceVersion?: string;
    annotations?: Record<string, string>;
  };
  spec?: {
    holderIdentity?: string | null;
    leaseDurationSeconds?: number | null;
    acquireTime?: string | null;
    renewTime?: string | null;
    leaseTransitions?: number | null;
  };
}

const writerAnnotation = 'smart-router/leader-process';

export class KubernetesLock implements LeaseLock {
  readonly description: string;
  readonly #options: KubernetesLockOptions;
  readonly #folder: string;
  /** As last read: a PUT replaces the whole object. */
  #lease: Lease | undefined;
  #writes = 0;

  constructor(options: KubernetesLockOptions) {
    const { namespace, name } = options;
    this.#options = options;
    this.#folder = `/apis/coordination.k8s.io/v1/namespaces/${encodeURIComponent(namespace)}/leases`;
    this.description = `the Lease ${namespace}/${name}`;
  }

  async read(timeoutMs: number): Promise<HeldRecord | undefined> {
    // Without a resourceVersion the API reads from etcd, not from a cache.
    const lease = await this.#ask({ path: this.#path, timeoutMs }, 404);
    return lease && recordOf(lease);
  }

  async write(
    record: LockRecord,
    version: string | undefined,
    timeoutMs: number,
  ): Promise<HeldRecord | undefined> {
    const { clock, namespace, name } = this.#options;
    if (version === undefined) {
      const empty = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: { name, namespace } };
      const body = this.#filledIn(empty, record);
      return this.#put({ method: 'POST', path: this.#folder, body, timeoutMs });
    }
    const untilMs = clock.monotonic() + timeoutMs;
    if (this.#lease?.metadata.resourceVersion !== version) await this.read(timeoutMs);
    const lease = this.#lease;
    if (lease?.metadata.resourceVersion !== version) return undefined;
    const leftMs = untilMs - clock.monotonic();
    if (leftMs <= 0) throw new Error(`no time left to write ${this.description}`);
    const body = this.#filledIn(lease, record);
    return this.#put({ method: 'PUT', path: this.#path, body, timeoutMs: leftMs });
  }

  get #path(): string {
    return `${this.#folder}/${encodeURIComponent(this.#options.name)}`;
  }

  #filledIn(lease: Lease, { holder, writer, durationMs, transitions, ...times }: LockRecord): Lease {
    const renewTime = microTime(times.renewedAt);
    this.#writes += 1;
    const signature = `${writer} ${renewTime} ${this.#writes}`;
    return {
      ...lease,
      metadata: {
        // With the uid: a PUT may create a deleted Lease again, but never as another object.
        ...lease.metadata,
        annotations: { ...lease.metadata.annotations, [writerAnnotation]: signature },
      },
      spec: {
        ...lease.spec,
        holderIdentity: holder,
        // At least 1 for the API; a second too many only makes followers wait longer.
        leaseDurationSeconds: Math.max(1, Math.ceil(durationMs / 1000)),
        acquireTime: microTime(times.acquiredAt),
        renewTime,
        leaseTransitions: transitions,
      },
    };
  }

  /** 409: it was changed, or exists already. 404 to a PUT: it was deleted. In both cases nothing was written. */
  async #put(request: LeaseRequest): Promise<HeldRecord | undefined> {
    const lease = await this.#ask(request, 409, ...(request.method === 'PUT' ? [404] : []));
    return lease && recordOf(lease);
  }

  async #ask(request: LeaseRequest, ...expected: number[]): Promise<Lease | undefined> {
    try {
      const lease = await this.#options.api.json<Lease | null>(request);
      // Compare-and-swap needs a version.
      if (typeof lease?.metadata?.resourceVersion !== 'string')
        throw new Error(`the response to ${request.method ?? 'GET'} ${request.path} is not a Lease`);
      this.#lease = lease;
    } catch (error) {
      const { status } = (error ?? {}) as { status?: number };
      if (status === undefined || !expected.includes(status)) throw error;
      this.#lease = undefined;
    }
    return this.#lease;
  }
}

/** The API checks types; a proxy may not. A field of a wrong type counts as missing. */
function recordOf({ metadata, spec }: Lease): HeldRecord {
  const [writer = '', signedAt] = textOf(metadata.annotations?.[writerAnnotation]).split(' ');
  const { holderIdentity, leaseDurationSeconds, acquireTime, renewTime, leaseTransitions } = spec ?? {};
  return {
    version: metadata.resourceVersion ?? '',
    // An unreadable holder is still a holder: an empty name would mean that the lock is free.
    holder: typeof holderIdentity === 'string' ? holderIdentity : holderIdentity == null ? '' : 'unknown',
    writer: signedAt !== undefined && renewTime === signedAt ? writer : '',
    durationMs: wholeNumber(leaseDurationSeconds) * 1000,
    acquiredAt: isoTime(acquireTime),
    renewedAt: isoTime(renewTime),
    transitions: wholeNumber(leaseTransitions),
  };
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function wholeNumber(value: unknown): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 0 ? value : 0;
}

/** Kubernetes requires microseconds in these times. */
function microTime(iso: string): string {
  return iso.replace(/\.(\d{3})Z$/, '.$1000Z');
}

function isoTime(value: unknown): string {
  const time = new Date(textOf(value));
  return Number.isNaN(time.getTime()) ? '' : time.toISOString();
}

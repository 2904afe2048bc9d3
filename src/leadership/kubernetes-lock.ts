/**
 * The lock as a Lease of Kubernetes (`coordination.k8s.io/v1`), in the fields every client-go elector uses, so that
 * `kubectl get lease` shows the leader and routers of both kinds respect each other during a migration.
 *
 * Compare-and-swap is the API's own: a PUT with the `resourceVersion` that was read is refused with 409 when the
 * Lease has changed since, by whomever; a label added by hand costs the leader one more read. What others have
 * written into the object stays as it is.
 *
 * The Lease has no field for the writing process, so that goes into an annotation, together with the `renewTime`
 * it belongs to: client-go rewrites the spec and keeps annotations, and what it wrote must not pass for ours. A number
 * follows that grows with every write, because the API keeps the `resourceVersion` of an object that a PUT leaves as
 * it was, and a leader whose wall clock repeats itself would look dead.
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
  /** As the API gave it last: a PUT replaces the whole object. */
  #lease: Lease | undefined;
  #writes = 0;

  constructor(options: KubernetesLockOptions) {
    const { namespace, name } = options;
    this.#options = options;
    this.#folder = `/apis/coordination.k8s.io/v1/namespaces/${encodeURIComponent(namespace)}/leases`;
    this.description = `the Lease ${namespace}/${name}`;
  }

  async read(timeoutMs: number): Promise<HeldRecord | undefined> {
    // Without a resourceVersion the API answers from etcd, not from a cache.
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
        // With the uid that was read: the API lets a PUT create a Lease that is gone, but never as another object.
        ...lease.metadata,
        annotations: { ...lease.metadata.annotations, [writerAnnotation]: signature },
      },
      spec: {
        ...lease.spec,
        holderIdentity: holder,
        // The API takes nothing below one; a second too many only makes followers wait longer.
        leaseDurationSeconds: Math.max(1, Math.ceil(durationMs / 1000)),
        acquireTime: microTime(times.acquiredAt),
        renewTime,
        leaseTransitions: transitions,
      },
    };
  }

  /** 409: it has changed, or exists already. 404 to a PUT: it was deleted. Neither has been written. */
  async #put(request: LeaseRequest): Promise<HeldRecord | undefined> {
    const lease = await this.#ask(request, 409, ...(request.method === 'PUT' ? [404] : []));
    return lease && recordOf(lease);
  }

  async #ask(request: LeaseRequest, ...expected: number[]): Promise<Lease | undefined> {
    try {
      const lease = await this.#options.api.json<Lease | null>(request);
      // Nothing could be swapped that has no version.
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

/** The API checks types; what stands before it may not. A field of another type counts as not said. */
function recordOf({ metadata, spec }: Lease): HeldRecord {
  const [writer = '', signedAt] = textOf(metadata.annotations?.[writerAnnotation]).split(' ');
  const { holderIdentity, leaseDurationSeconds, acquireTime, renewTime, leaseTransitions } = spec ?? {};
  return {
    version: metadata.resourceVersion ?? '',
    // But a holder that cannot be read is one: an empty name would mean that the lock is free.
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

/** Kubernetes writes these times with microseconds, and insists on them. */
function microTime(iso: string): string {
  return iso.replace(/\.(\d{3})Z$/, '.$1000Z');
}

function isoTime(value: unknown): string {
  const time = new Date(textOf(value));
  return Number.isNaN(time.getTime()) ? '' : time.toISOString();
}

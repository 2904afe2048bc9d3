/**
 * Writes a history file: what clients sent and received, one JSON object per line, for `npm run check-history`. The format is
 * in docs/guarantees.md. All times are of this process's monotonic clock.
 */
import { closeSync, mkdirSync, openSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';

export interface Setup {
  pools: Record<string, { kind: 'exclusive' | 'shared'; max?: number; pods?: string[] }>;
  merchants?: Record<string, { max_calls?: number; priority?: number }>;
  lease_ms: number;
  drain_ms?: number;
  report_grace_ms?: number;
  no_show_ms?: number;
  notes?: string;
}

/** A request as it was sent; `done`, `status` and `answer` are added when it ends. */
export interface SentRequest {
  op: 'allocate' | 'release' | 'renew' | 'report' | 'drain' | 'undrain';
  sid?: string;
  pod?: string;
  fence?: number;
  merchant?: string;
  wait_ms?: number;
  calls?: string[];
  as_of?: number;
}

interface Reply {
  /** 0: no reply. */
  status: number;
  body: unknown;
}

export class HistoryWriter {
  readonly #file: number;
  readonly #open = new Map<number, object>();
  #buffer: string[] = [];
  #nextId = 1;
  #isClosed = false;

  constructor(
    readonly path: string,
    setup: Setup,
    readonly now: () => number = () => performance.now(),
  ) {
    mkdirSync(dirname(path), { recursive: true });
    this.#file = openSync(path, 'w');
    this.#write({ type: 'setup', ...setup });
  }

  /** Call it when the request is sent. Call the returned function with the reply; status 0 or null: none was received. */
  begin(sent: SentRequest): (status: number | null, answer?: unknown) => void {
    const id = this.#nextId++;
    const line = { type: 'request', id, at: this.now(), ...sent };
    this.#open.set(id, line);
    return (status, answer) => {
      // A reply after `close` was written as lost.
      if (!this.#open.delete(id)) return;
      this.#write(
        status ? { ...line, done: this.now(), status, answer } : { ...line, done: null, status: null },
      );
    };
  }

  /** Sends a request of the HTTP API and writes it, if it is one that the checker judges. */
  async send<R extends Reply>(path: string, body: unknown, send: () => Promise<R>): Promise<R> {
    const sent = toSent(path, body);
    if (!sent) return send();
    const end = this.begin(sent);
    try {
      const reply = await send();
      end(reply.status, reply.body);
      return reply;
    } catch (error) {
      end(null);
      throw error;
    }
  }

  /** The pod was deleted, replaced or restarted now. `ms`: how long until the routers have certainly noticed. */
  podGone(pod: string, ms?: number): void {
    const at = this.now();
    this.#write({ type: 'pod_gone', at, pod, ...(ms === undefined ? {} : { until: at + ms }) });
  }

  changed(what: Partial<Pick<Setup, 'pools' | 'merchants'>>): void {
    this.#write({ type: 'changed', at: this.now(), ...what });
  }

  /** `at` and `until` are of this writer's clock. */
  fault(kind: string, at: number, until: number, losesWrites = false): void {
    this.#write({ type: 'fault', at, until, kind, ...(losesWrites ? { loses_writes: true } : {}) });
  }

  /** Requests that are still open are written as lost; later ones are not written. */
  close(): void {
    if (this.#isClosed) return;
    for (const line of this.#open.values()) this.#write({ ...line, done: null, status: null });
    this.#open.clear();
    this.#write({ type: 'end', at: this.now() });
    this.#flush();
    closeSync(this.#file);
    this.#isClosed = true;
  }

  #write(line: object): void {
    if (this.#isClosed) return;
    this.#buffer.push(`${JSON.stringify(line)}\n`);
    if (this.#buffer.length >= 500) this.#flush();
  }

  #flush(): void {
    writeSync(this.#file, this.#buffer.join(''));
    this.#buffer = [];
  }
}

const units: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** '5s' or '100ms' in milliseconds. */
function toMs(duration: string): number {
  const [, count, unit = ''] = /^(\d+)(ms|s|m|h)$/.exec(duration) ?? [];
  return Number(count) * (units[unit] ?? Number.NaN);
}

/** A request of the HTTP API in the fields of the history; undefined for others. */
export function toSent(path: string, body: unknown): SentRequest | undefined {
  const sent = (body ?? {}) as Record<string, never>;
  const { call_sid: sid, fence, merchant_id: merchant, wait, pod_name, calls, as_of } = sent;
  const [, op, pod = pod_name] =
    /\/(allocate|release|renew|drain|undrain)$/.exec(path) ?? reportOf(path) ?? [];
  if (!op) return undefined;
  const wait_ms = wait === undefined ? undefined : toMs(wait);
  const all = { op, sid, pod, fence, merchant, wait_ms, calls, as_of };
  return Object.fromEntries(
    Object.entries(all).filter(([, value]) => value !== undefined),
  ) as unknown as SentRequest;
}

function reportOf(path: string): string[] | undefined {
  const pod = /\/pod\/([^/]+)\/report$/.exec(path)?.[1];
  return pod === undefined ? undefined : [path, 'report', decodeURIComponent(pod)];
}

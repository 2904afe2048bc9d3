/** The dependencies of the routes, and the types that the server adds to Fastify's. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import type { FastifyBaseLogger, FastifyInstance, RawServerDefault } from 'fastify';
import type { Auditor } from '../calls/audit/auditor.js';
import type { EventSearch } from '../calls/event-search.js';
import type { EventFeed } from '../calls/events.js';
import type { History } from '../calls/history/history.js';
import type { Metrics } from '../calls/metrics.js';
import type { CallRouter } from '../calls/router.js';
import type { Settings } from '../calls/settings.js';
import type { PoolStore } from '../calls/store/pool-store.js';
import type { CallStore } from '../calls/store/store.js';
import type { WaitQueue } from '../calls/wait-queue.js';
import type { Clock } from '../clock.js';
import type { Config } from '../config/config.js';
import type { LoopState } from '../loop.js';
import type { Logger } from '../observe/log.js';
import type { Tracing } from '../observe/tracing.js';
import type { PoolManager } from '../pool/manager.js';
import type { RecordsAdmin } from '../records/admin.js';
import type { OperatorAction } from './action-log.js';
import type { Admission, Kind } from './admission.js';
import type { Connections } from './connections.js';
import type { CountRejection } from './gate.js';
import type { Probes } from './routes/probes.js';

/** Of every body, where a route has no limit of its own. */
export const bodyLimitBytes = 64 * 1024;

export interface HttpContext {
  config: Config;
  router: CallRouter;
  store: CallStore;
  pools: PoolStore;
  settings: Settings;
  auditor: Auditor;
  feed: EventFeed;
  queue: WaitQueue;
  search: EventSearch;
  history: History;
  admission: Admission;
  metrics: Metrics;
  log: Logger;
  /** Undefined unless tracing is on. */
  tracing?: Tracing | undefined;
  clock: Clock;
  /** Undefined without DATABASE_URL. */
  records: RecordsAdmin | undefined;
  leadership: Pick<PoolManager, 'isLeader' | 'leader' | 'election' | 'nudge'>;
  loops(): LoopState[];
  /** The metrics of all workers, as text; undefined if this process is the only one. */
  renderGroup?: (() => Promise<string>) | undefined;
  /** Aborts when this router begins to stop: waiting requests are answered then. */
  stopping: AbortSignal;
}

export type App = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>;

/** Who may call a route: any caller, holders of either key, of the admin key, or a provider by its signature. */
export type Access = 'public' | 'api' | 'admin' | 'webhook';

/** Documents the routes of a tag; a schema has the shapes of the request and of the responses. */
export const documented =
  (tag: string) =>
  <const Schema extends object>(summary: string, schema: Schema) => ({
    schema: { tags: [tag], summary, ...schema },
  });

declare module 'fastify' {
  interface FastifyInstance {
    connections: Connections;
    countRejection: CountRejection;
    probes: Probes;
  }
  interface FastifyContextConfig {
    /** Default: admin. */
    access?: Access;
    /** A missing body counts as an empty object. */
    bodyOptional?: boolean;
    /** Probes are logged at debug. */
    quiet?: boolean;
    /** Set by the server for every route: which slot in admission its requests take. */
    kind?: Kind;
    /** Marks an operator's action, which is logged. */
    action?: OperatorAction;
  }
  interface FastifyRequest {
    /** Additional fields of this request's log line. */
    about: Record<string, unknown>;
    /** For events and the action log: which key or session, and its address. */
    actor: string;
  }
}

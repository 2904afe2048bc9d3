/** What the routes are given. */

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
import type { Clock } from '../clock.js';
import type { Config } from '../config/config.js';
import type { LoopState } from '../loop.js';
import type { RecordsAdmin } from '../main/records-plane.js';
import type { Logger } from '../observe/log.js';
import type { Tracing } from '../observe/tracing.js';
import type { Admission, Kind } from './admission.js';
import type { Audited } from './audit.js';
import type { Connections } from './connections.js';
import type { Probes } from './probes.js';

/** Of every body, where a route has no limit of its own. */
export const bodyLimitBytes = 64 * 1024;

export interface HttpContext {
  config: Pick<
    Config,
    | 'apiKey'
    | 'adminKey'
    | 'authDisabled'
    | 'consoleSessionTtlMs'
    | 'twilioAuthToken'
    | 'plivoAuthToken'
    | 'exotelWebhookToken'
    | 'publicUrl'
    | 'trustProxy'
    | 'maxConnections'
    | 'maxConnectionsPerAddress'
    | 'voiceAgentBaseUrl'
    | 'wsUrlTemplate'
    | 'requestTimeoutMs'
    | 'shutdownTimeoutMs'
  >;
  router: CallRouter;
  store: CallStore;
  pools: PoolStore;
  settings: Settings;
  auditor: Auditor;
  feed: EventFeed;
  search: EventSearch;
  history: History;
  /** Which requests are handled while there are too many. */
  admission: Admission;
  metrics: Metrics;
  log: Logger;
  /** Undefined unless traces are wanted. */
  tracing?: Tracing | undefined;
  clock: Clock;
  /** Undefined without DATABASE_URL. */
  records: RecordsAdmin | undefined;
  leadership: {
    isLeader: boolean;
    leader: string | null;
    election: { lock: string; last_error: string | null };
    loops: LoopState[];
    /** Syncs now, if this replica leads. */
    nudge(): void;
  };
  /** Aborts when this router begins to stop: whoever waits gets an answer then. */
  stopping: AbortSignal;
}

export type App = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>;

/** Who may call a route: everybody, holders of one of the keys, of the admin key, or a provider by its signature. */
export type Access = 'public' | 'api' | 'admin' | 'webhook';

declare module 'fastify' {
  interface FastifyInstance {
    connections: Connections;
    probes: Probes;
  }
  interface FastifyContextConfig {
    /** Default: admin. */
    access?: Access;
    /** A request without a body is as good as an empty object. */
    bodyOptional?: boolean;
    /** Probes are logged at debug. */
    quiet?: boolean;
    /** Set by the server for every route: which place in admission its requests take. */
    kind?: Kind;
    /** What an operator does: it gets an audit line. */
    audit?: Audited;
  }
  interface FastifyRequest {
    /** What the log line of this request says beside the usual. */
    about: Record<string, unknown>;
    /** For events and audit: which key or session, from where. */
    actor: string;
    /** Counted, logged and audited: that happens once, however the request ends. */
    isRecorded: boolean;
  }
}

import type { FastifyBaseLogger } from 'fastify';

type Child = FastifyBaseLogger['child'];

/**
 * The log of a request: every line has its id. Creates the child logger when a line is written: few requests write one, and a
 * logger per request took 2 us.
 */
class RequestLog {
  constructor(
    private readonly log: FastifyBaseLogger,
    private readonly ids: Parameters<Child>[0],
  ) {}

  child(bindings: Parameters<Child>[0], options?: Parameters<Child>[1]): FastifyBaseLogger {
    return this.log.child({ ...this.ids, ...bindings }, options);
  }
}

for (const level of ['fatal', 'error', 'warn', 'info', 'debug', 'trace'] as const) {
  Object.defineProperty(RequestLog.prototype, level, {
    value(this: RequestLog, ...line: Parameters<FastifyBaseLogger[typeof level]>) {
      this.child({})[level](...line);
    },
  });
}

export function createRequestLog(log: FastifyBaseLogger, ids: Parameters<Child>[0]): FastifyBaseLogger {
  return new RequestLog(log, ids) as unknown as FastifyBaseLogger;
}

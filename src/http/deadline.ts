/** Time limits of requests, and callers that are gone. */
import type { FastifyRequest } from 'fastify';
import type { Clock } from '../clock.js';
import { AppError } from '../errors.js';

/** Rejects with 503 when `work` is not done in time; the work itself has its own, shorter deadlines. */
export async function withDeadline<T>(clock: Clock, ms: number, work: Promise<T>): Promise<T> {
  let cancel = () => {};
  const late = new Promise<never>((_, reject) => {
    cancel = clock.after(ms, () => {
      reject(new AppError('timeout', `no answer within ${ms} ms`, { retryAfterSeconds: 1 }));
    });
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    cancel();
  }
}

/** The connection has been closed by the other side: nobody will read the answer. */
export function callerGone(request: FastifyRequest): boolean {
  const { socket } = request.raw;
  return socket.destroyed || socket.writableEnded;
}

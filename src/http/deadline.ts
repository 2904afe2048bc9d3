/** Time limits of requests, and callers that have disconnected. */
import type { FastifyRequest } from 'fastify';
import type { Clock } from '../clock.js';
import { AppError } from '../errors.js';
import type { HttpContext } from './context.js';

/** `withDeadline` with REQUEST_TIMEOUT. */
export function inTime<T>(
  { clock, config }: Pick<HttpContext, 'clock' | 'config'>,
  work: Promise<T>,
): Promise<T> {
  return withDeadline(clock, config.requestTimeoutMs, work);
}

/** Rejects with 503 when `work` is not done in time; the work itself has its own, shorter deadlines. */
export function withDeadline<T>(clock: Clock, ms: number, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const cancel = clock.after(ms, () => {
      reject(new AppError('timeout', `no answer within ${ms} ms`, { retryAfterSeconds: 1 }));
    });
    work.then(
      (value) => {
        cancel();
        resolve(value);
      },
      (error: unknown) => {
        cancel();
        reject(error);
      },
    );
  });
}

export function isDisconnected(request: FastifyRequest): boolean {
  const { socket } = request.raw;
  return socket.destroyed || socket.writableEnded;
}

export function disconnectedError(): AppError {
  return new AppError('timeout', 'the caller closed the connection before the response');
}

/**
 * Rejects changes of operators that would happen late: an abandoned change would undo a newer one. A process that was
 * paused reads its queued requests first, and notices only in the next turn of the event loop that their callers have
 * disconnected. One timer may be due before that turn, two are not.
 */
export async function rejectIfDisconnected(clock: Clock, request: FastifyRequest): Promise<void> {
  await clock.sleep(1);
  await clock.sleep(1);
  if (isDisconnected(request)) throw disconnectedError();
}

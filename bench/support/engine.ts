/** The measured store: a redis-server or valkey-server of this machine, else the embedded Valkey. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startEmbeddedValkey } from '../../src/embedded/valkey.js';

export interface BenchEngine {
  url: string;
  /** Program and version, for the report. */
  name: string;
  stop(): Promise<void>;
}

/** SMART_ROUTER_BENCH_ENGINE=embedded measures the embedded one even if a native one is installed. */
export async function startEngine(extra: readonly string[] = []): Promise<BenchEngine> {
  const wanted = process.env.SMART_ROUTER_BENCH_ENGINE;
  if (wanted !== 'embedded') {
    for (const program of ['redis-server', 'valkey-server']) {
      const version = spawnSync(program, ['--version'], { encoding: 'utf8' });
      if (version.status !== 0) continue;
      const number = /v=([\d.]+)/.exec(version.stdout)?.[1] ?? '';
      return startNative(program, `native ${program} ${number}`.trim(), extra);
    }
  }
  const valkey = await startEmbeddedValkey();
  return { url: valkey.url, name: 'embedded Valkey (WebAssembly)', stop: () => valkey.stop() };
}

async function startNative(program: string, name: string, extra: readonly string[]): Promise<BenchEngine> {
  const folder = mkdtempSync(join(tmpdir(), 'smart-router-bench-'));
  const port = await freePort();
  const args = [
    '--port',
    String(port),
    '--bind',
    '127.0.0.1',
    '--save',
    '',
    '--appendonly',
    'no',
    '--dir',
    folder,
    ...extra,
  ];
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const end = () => {
    child.kill('SIGKILL');
    rmSync(folder, { recursive: true, force: true });
  };
  process.once('exit', end);
  await ready(child, program);
  return {
    url: `redis://127.0.0.1:${port}`,
    name,
    async stop() {
      const ended = new Promise((resolve) => child.once('exit', resolve));
      end();
      await ended;
      process.off('exit', end);
    },
  };
}

function ready(child: ChildProcess, program: string): Promise<void> {
  return new Promise((resolve, reject) => {
    let output = '';
    child.stdout?.on('data', (chunk: Buffer) => {
      if (output.length < 10_000) output += chunk.toString();
      if (output.includes('Ready to accept connections')) resolve();
    });
    child.once('error', reject);
    child.once('exit', (code) =>
      reject(new Error(`${program} ended with ${code} before it was ready:\n${output}`)),
    );
  });
}

export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
}

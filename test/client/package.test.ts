/** The package `@smart-router/client` as a project gets it: packed, installed without a network, compiled and run. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { version } from '../../src/version.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const project = mkdtempSync(join(tmpdir(), 'smart-router-client-'));
const installed = join(project, 'node_modules/@smart-router/client');

function run(file: string, args: string[]): string {
  const { status, stdout, stderr, error } = spawnSync(file, args, { cwd: project, encoding: 'utf8' });
  if (status !== 0) throw new Error(`${args.join(' ')}: ${error ?? ''}\n${stdout}${stderr}`);
  return stdout;
}

/** Under npm the same npm, else the one on PATH. */
function npm(...args: string[]): void {
  const path = process.env.npm_execpath;
  const quiet = [...args, '--no-audit', '--no-fund', '--ignore-scripts', '--cache', join(project, 'cache')];
  if (path !== undefined && existsSync(path)) run(process.execPath, [path, ...quiet]);
  else run('npm', quiet);
}

const tarball = `smart-router-client-${version}.tgz`;

beforeAll(() => {
  writeFileSync(join(project, 'package.json'), '{ "type": "module", "private": true }');
  npm('pack', join(root, 'clients/typescript'));
  npm('install', '--offline', `./${tarball}`);
});
afterAll(() => rmSync(project, { recursive: true, force: true }));

describe('@smart-router/client', () => {
  it('has the version of the router, no dependency, and less than 1 MB', () => {
    const manifest = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8'));
    expect(manifest).toMatchObject({ version, engines: { node: '>=20' } });
    expect(Object.keys(manifest).filter((key) => /dependencies/i.test(key))).toEqual([]);
    expect(readdirSync(join(project, 'node_modules')).filter((name) => !name.startsWith('.'))).toEqual([
      '@smart-router',
    ]);
    const files = readdirSync(installed, { recursive: true, encoding: 'utf8' });
    expect(files).toEqual(expect.arrayContaining(['README.md', join('dist', 'LICENSE')]));
    const bytes = files.reduce((sum, name) => sum + statSync(join(installed, name)).size, 0);
    expect(bytes).toBeLessThan(1_000_000);
  });

  it('exports the same names as smart-router/client', async () => {
    const code = `console.log(JSON.stringify(Object.keys(await import('@smart-router/client'))))`;
    const names = JSON.parse(run(process.execPath, ['--input-type=module', '--eval', code]));
    expect(names.sort()).toEqual(Object.keys(await import('../../src/client/index.js')).sort());
  });
});

/** What callers write, in the types that their values have. Each line compiles. */
const consumer = `
import * as library from '@smart-router/client';
import { type AttachedCall, type Call, type Client, type ClientOptions, createClient } from '@smart-router/client';

interface Config { retries?: number; baseMs?: number | undefined; openMs?: number | undefined; key: string | undefined }

export function open(config: Config): Client {
  const options: ClientOptions = {
    baseUrl: 'http://127.0.0.1:1',
    apiKey: config.key,
    retries: config.retries,
    backoff: { baseMs: config.baseMs },
    breaker: { openMs: config.openMs },
    fetch,
    onEvent(event) {
      if (event.type === 'retry' || event.type === 'fallback') console.log(event.error.code);
    },
  };
  return createClient(options);
}

/** As undici exports it: other classes than the global ones. */
interface OtherResponse { status: number; headers: { get(name: string): string | null }; body: AsyncIterable<Uint8Array> | null; bytes(): unknown }
interface OtherInit { method?: string; headers?: Record<string, string>; body?: string | null; redirect?: 'manual' | 'follow'; signal?: AbortSignal | null; dispatcher?: object }
declare function otherFetch(url: string | URL | OtherResponse, init?: OtherInit): Promise<OtherResponse>;
createClient({ baseUrl: 'http://127.0.0.1:1', fetch: (url, init) => otherFetch(url, { ...init, dispatcher: {} }) });
createClient({ baseUrl: 'http://127.0.0.1:1', fetch: (url, init) => fetch(url, init) });

export async function useFence(client: Client, call: Call, attached: AttachedCall): Promise<void> {
  await client.renew(call.callSid, { fence: call.fence });
  await client.release(call.callSid, { fence: call.fence, reason: undefined });
  await client.renew(attached.callSid, { fence: attached.fence, signal: undefined });
  client.attach({ callSid: call.callSid, fence: call.fence, podName: call.podName }).detach();
  call.keepAlive({ intervalMs: undefined });
  const result: library.ReleaseResult = await call.release({ reason: 'connect_failed' });
  const pod: library.ReleasedPod | null = result.released ? result : null;
  const renewal: library.Renewal = await call.renew({ signal: undefined });
  const held: AttachedCall = call;
  console.log(pod?.podName, renewal.leaseExpiresAt, held.podName, call.lost.aborted);
}

/** A project's own tests make errors and calls. */
export const busy = new library.NoPodsError({ operation: 'allocate', status: 503, code: 'no_pods', text: '', retryAfterMs: 1 } satisfies library.Refusal);
export const down = new library.RouterUnavailableError({ operation: 'allocate', reason: 'network', text: '', attempts: 1, status: undefined });
`;

/** The examples of a document: imports first, the rest inside one function. */
function examplesOf(path: string): string {
  const blocks = [...readFileSync(join(root, path), 'utf8').matchAll(/^```ts\n([\s\S]*?)^```/gm)];
  const code = blocks.map(([, block = '']) => block).join('\n');
  const body = code.replace(/^import .*\n/gm, '').replace(/^export /gm, '');
  return `${(code.match(/^import .*\n/gm) ?? []).join('')}
declare const callSid: string, merchantId: string, fence: number | null;
declare const log: Record<'info' | 'warn', (fields: unknown, text?: string) => void>;
declare const metrics: { fallbacks: { inc(): void } };
declare const session: { stop(reason: Error): void; on(event: 'end', listener: () => Promise<void>): void };
declare const sessions: Map<string, { stop(): void }>;
declare function connectStream(url: string): void;
declare function sayBusy(): void;
declare function sayPosition(position: number): void;
declare function holdTheLine(position: number): void;
export async function examples() {\n${body}\n}\n`;
}

describe('the types of @smart-router/client', () => {
  const typesOfNode = { types: ['node'], typeRoots: [join(root, 'node_modules/@types')], lib: ['ES2022'] };
  it.each([
    ['exact optional properties and the types of Node', { exactOptionalPropertyTypes: true, ...typesOfNode }],
    ['the types of a browser', { types: [], lib: ['ES2022', 'DOM'] }],
  ])('compile what callers write, with %s', (name, options) => {
    writeFileSync(join(project, 'consumer.ts'), consumer);
    const withNode = 'typeRoots' in options;
    if (withNode) {
      writeFileSync(join(project, 'guide.ts'), examplesOf('docs/client.md'));
      writeFileSync(join(project, 'readme.ts'), examplesOf('clients/typescript/README.md'));
    }
    const compilerOptions = { module: 'NodeNext', target: 'ES2022', strict: true, noEmit: true, ...options };
    const files = withNode ? ['consumer.ts', 'guide.ts', 'readme.ts'] : ['consumer.ts'];
    const config = join(project, `${name.replaceAll(' ', '-')}.json`);
    writeFileSync(config, JSON.stringify({ compilerOptions, files }));
    run(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', config]);
  });
});

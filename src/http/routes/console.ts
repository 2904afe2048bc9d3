/**
 * GET /: the console, a page that shows this router live. Its files are read once and kept in memory. They hold no data:
 * everything shown comes from authenticated endpoints. The policy allows our own files only, and nothing inline.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { extname } from 'node:path';
import { gzipSync } from 'node:zlib';
import type { FastifyReply, FastifyRequest } from 'fastify';
import Type from 'typebox';
import { AppError } from '../../errors.js';
import type { App } from '../context.js';

/** The same folder seen from src/ and from dist/. */
const folder = new URL('../../../dist/console/', import.meta.url);

const types: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

const headers = {
  'content-security-policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "img-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
};

interface ConsoleFile {
  type: string;
  plain: Buffer;
  packed: Buffer;
}

export async function consoleRoutes(app: App): Promise<void> {
  let files: ReadonlyMap<string, ConsoleFile> | undefined;
  const find = (name: string) => {
    files ??= readFiles();
    return files?.get(name);
  };
  const options = { config: { access: 'public' as const, quiet: true }, schema: { hide: true } };

  app.get('/', options, async (request, reply) => {
    const page = find('index.html');
    if (!page)
      throw new AppError('not_found', 'this build does not contain the console: run `npm run build`');
    // Names of assets change with every build, so browsers must always revalidate the page.
    return send(request, reply.header('cache-control', 'no-cache'), page);
  });

  app.get(
    '/assets/:file',
    { ...options, schema: { hide: true, params: Type.Object({ file: Type.String() }) } },
    async (request, reply) => {
      const file = find(`assets/${request.params.file}`);
      if (!file) throw new AppError('not_found', 'the console has no such file: reload the page');
      return send(request, reply.header('cache-control', 'public, max-age=31536000, immutable'), file);
    },
  );
}

function send(request: FastifyRequest, reply: FastifyReply, { type, plain, packed }: ConsoleFile) {
  const isPacked = takesGzip(request.headers['accept-encoding']);
  reply.headers({ ...headers, 'content-type': type, vary: 'accept-encoding' });
  if (isPacked) reply.header('content-encoding', 'gzip');
  return reply.send(isPacked ? packed : plain);
}

/** gzip is listed, and not with a weight of 0, which excludes it. */
function takesGzip(header: string | string[] | undefined): boolean {
  return String(header ?? '')
    .split(',')
    .some((each) => /^\s*(x-)?gzip\s*(;(?!\s*q=0(\.0*)?\s*$)|$)/i.test(each));
}

/** Undefined without a build, for example in tests that run from the sources; the next request tries again. */
function readFiles(): ReadonlyMap<string, ConsoleFile> | undefined {
  try {
    const names = readdirSync(new URL('assets/', folder)).map((name) => `assets/${name}`);
    return new Map(['index.html', ...names].map((name) => [name, readFile(name)]));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

function readFile(name: string): ConsoleFile {
  const plain = readFileSync(new URL(name, folder));
  return { type: types[extname(name)] ?? 'application/octet-stream', plain, packed: gzipSync(plain) };
}

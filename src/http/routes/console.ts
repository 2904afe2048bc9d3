/**
 * GET /: the console, one page that shows this router live. The files are those of the build, read once and kept in
 * memory; none holds any data, everything it shows comes from guarded endpoints. The policy allows files of our own
 * and nothing inline, from nowhere else.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { extname } from 'node:path';
import { gzipSync } from 'node:zlib';
import type { FastifyReply, FastifyRequest } from 'fastify';
import Type from 'typebox';
import { AppError } from '../../errors.js';
import type { App, HttpContext } from '../context.js';

/** The same place seen from src/ and from dist/. */
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

export async function consoleRoutes(app: App, _context: HttpContext): Promise<void> {
  let files: ReadonlyMap<string, ConsoleFile> | undefined;
  const find = (name: string) => {
    files ??= readFiles();
    return files?.get(name);
  };
  const options = { config: { access: 'public' as const, quiet: true }, schema: { hide: true } };

  app.get('/', options, async (request, reply) => {
    const page = find('index.html');
    if (!page) throw new AppError('not_found', 'the console is not in this build: run `npm run build`');
    // Names of assets change with every build, so the page that names them is always asked for again.
    return send(request, reply.header('cache-control', 'no-cache'), page);
  });

  app.get(
    '/assets/:file',
    { ...options, schema: { hide: true, params: Type.Object({ file: Type.String() }) } },
    async (request, reply) => {
      const file = find(`assets/${request.params.file}`);
      if (!file) throw new AppError('not_found', 'the console has no such file: load the page again');
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

/** Named, and not with a weight of 0, which refuses it. */
function takesGzip(header: string | string[] | undefined): boolean {
  return String(header ?? '')
    .split(',')
    .some((each) => /^\s*(x-)?gzip\s*(;(?!\s*q=0(\.0*)?\s*$)|$)/i.test(each));
}

/** Undefined without a build, as when tests run from the sources; then it is looked for again with the next request. */
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

import { execFileSync } from 'node:child_process';
import type { LookupAddress } from 'node:dns';
import { once } from 'node:events';
import * as https from 'node:https';
import { type AddressInfo, createServer } from 'node:net';
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/clock.js';
import { guardedLookup, systemResolve } from '../../src/workflows/fetch/addresses.js';
import {
  type Answer,
  Fetcher,
  type FetcherOptions,
  type FetchRequest,
} from '../../src/workflows/fetch/fetcher.js';
import { FetchError } from '../../src/workflows/fetch/urls.js';
import { findOnPath } from '../support/engines.js';
import { ManualClock } from '../support/manual-clock.js';
import { until } from '../support/until.js';
import { startWeb, type Web } from './web.js';

let web: Web;
beforeEach(async () => {
  web = await startWeb();
});
afterEach(() => web.close());

const kilobyte = 1024;
const request = (extra: Partial<FetchRequest> = {}): FetchRequest => ({
  accept: '*/*',
  maxBytes: 100 * kilobyte,
  what: 'page',
  signal: new AbortController().signal,
  ...extra,
});
const fetcher = (options: Partial<FetcherOptions> = {}) =>
  new Fetcher({ clock: systemClock, allowPrivateAddresses: true, ...options });

async function text({ body }: Answer): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of body) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}
const get = (url: string, options: Partial<FetcherOptions> = {}, extra: Partial<FetchRequest> = {}) =>
  fetcher(options).get(url, request(extra), text);

/** The message of the FetchError that it must end with. */
async function failure(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    (value) => new Error(`it succeeded with ${JSON.stringify(value)}`),
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(FetchError);
  return (error as FetchError).message;
}

/** One PEM holds both: written to standard output, so nothing stays on disk. */
function selfSigned(): { key: string; cert: string } {
  const subject = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1'];
  const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  const options = ['req', '-x509', ...kind, ...subject, '-keyout', '-', '-out', '-'];
  const pem = execFileSync('openssl', options, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  return { key: pem, cert: pem };
}

describe('a response', () => {
  it('yields the body, its type and final URL, and sends a user agent', async () => {
    const url = web.on('/a', 'hello', { 'content-type': 'text/html; charset=utf-8' });
    const answer = await fetcher({ userAgent: 'test/1' }).get(`${url}#part`, request(), async (one) => ({
      ...one,
      body: await text(one),
    }));
    const signal = expect.any(AbortSignal);
    expect(answer).toEqual({ url, contentType: 'text/html; charset=utf-8', body: 'hello', signal });
    expect(web.requests[0]?.headers).toMatchObject({
      'user-agent': 'test/1',
      accept: '*/*',
      connection: 'close',
    });
  });

  it.each([
    ['gzip', gzipSync],
    ['x-gzip', gzipSync],
    ['br', brotliCompressSync],
    ['deflate', deflateSync],
    ['deflate', deflateRawSync],
  ])('in %s is unpacked', async (encoding, pack) => {
    const url = web.on('/a', pack(Buffer.from('hello '.repeat(1000))), { 'content-encoding': encoding });
    expect(await get(url)).toBe('hello '.repeat(1000));
  });

  it('compressed twice is unpacked in the right order', async () => {
    const packed = gzipSync(brotliCompressSync(Buffer.from('hello')));
    expect(await get(web.on('/a', packed, { 'content-encoding': 'br, gzip' }))).toBe('hello');
  });

  it('that is empty stays empty, compressed or not', async () => {
    expect(await get(web.on('/a', '', { 'content-encoding': 'gzip' }))).toBe('');
    expect(await get(web.on('/b', ''))).toBe('');
  });

  it('in an unsupported encoding is refused', async () => {
    const url = web.on('/a', 'x', { 'content-encoding': 'zstd' });
    expect(await failure(get(url))).toBe('the content encoding zstd is not supported');
    const often = web.on('/b', 'x', { 'content-encoding': 'gzip, gzip, gzip' });
    expect(await failure(get(often))).toBe('the content encoding gzip, gzip, gzip is not supported');
  });

  it.each([404, 410, 429, 500, 503, 304])('of %d is an error', async (status) => {
    const url = web.on('/a', (response) => response.writeHead(status).end());
    expect(await failure(get(url))).toBe(`GET ${url} answered ${status}`);
  });

  it('is not read further than needed, and its connection is closed', async () => {
    const url = web.on('/endless', (response) => {
      response.writeHead(200);
      const more = (error?: unknown) => error || response.destroyed || response.write('x'.repeat(1000), more);
      more();
    });
    const first = await fetcher().get(url, request(), async ({ body }) => {
      for await (const chunk of body) return chunk.length;
      return 0;
    });
    expect(first).toBeGreaterThan(0);
    await until(() => web.open.size === 0, 'the connection is closed');
  });

  it('is closed when the reader fails, with the error unchanged', async () => {
    const url = web.on('/a', (response) => void response.writeHead(200).write('x'));
    const own = new Error('mine');
    await expect(fetcher().get(url, request(), () => Promise.reject(own))).rejects.toBe(own);
    await until(() => web.open.size === 0, 'the connection is closed');
  });
});

describe('size', () => {
  it('exactly at the limit is accepted, one byte more is not', async () => {
    const exact = web.on('/exact', 'x'.repeat(1000));
    expect(await get(exact, {}, { maxBytes: 1000 })).toHaveLength(1000);
    const over = web.on('/over', (response) => {
      // In two pieces, so that there is no Content-Length.
      response.writeHead(200);
      response.write('x'.repeat(1000));
      response.end('x');
    });
    expect(await failure(get(over, {}, { maxBytes: 1000 }))).toBe('the page is larger than 1,000 bytes');
  });

  it('is refused by its Content-Length, before the body', async () => {
    const url = web.on(
      '/huge',
      (response) => void response.writeHead(200, { 'content-length': 6 * 1024 ** 2 }).write('x'),
    );
    const message = await failure(get(url, {}, { maxBytes: 5 * 1024 ** 2 }));
    expect(message).toBe('the page is larger than 5 MB');
  });

  it.each([
    ['gzip', gzipSync],
    ['br', brotliCompressSync],
    ['deflate', deflateSync],
  ])('of what a %s bomb unpacks to is limited', async (encoding, pack) => {
    const bomb = pack(Buffer.alloc(20 * 1024 ** 2));
    expect(bomb.length).toBeLessThan(100 * kilobyte);
    const url = web.on('/bomb', bomb, { 'content-encoding': encoding });
    let seen = 0;
    const reading = fetcher().get(url, request(), async ({ body }) => {
      for await (const chunk of body) seen += chunk.length;
    });
    expect(await failure(reading)).toBe('the page is larger than 102,400 bytes');
    expect(seen).toBeLessThanOrEqual(100 * kilobyte);
  });

  it('is limited between two layers, even if the last one is empty', async () => {
    // Members of gzip without content: 20 bytes each, a thousand times smaller when packed again.
    const nothing = Buffer.concat(Array<Buffer>(20_000).fill(gzipSync(Buffer.alloc(0))));
    const url = web.on('/bomb', gzipSync(nothing), { 'content-encoding': 'gzip, gzip' });
    expect(await failure(get(url))).toBe('the page is larger than 102,400 bytes');
  });
});

describe('broken responses', () => {
  it('truncated gzip is an error', async () => {
    const packed = gzipSync(Buffer.from('hello '.repeat(1000)));
    const url = web.on('/a', packed.subarray(0, packed.length - 12), { 'content-encoding': 'gzip' });
    expect(await failure(get(url))).toBe('the gzip data is broken (unexpected end of file)');
  });

  it('bytes that do not match the header are an error', async () => {
    const url = web.on('/a', 'plain text', { 'content-encoding': 'gzip' });
    expect(await failure(get(url))).toBe('the gzip data is broken (incorrect header check)');
  });

  it('a body shorter than its Content-Length is an error', async () => {
    const url = web.on('/a', (response) => {
      response.writeHead(200, { 'content-length': 100 });
      response.write('x', () => response.destroy());
    });
    expect(await failure(get(url))).toBe(`GET ${url} failed: the connection was reset`);
  });

  it('a connection closed before the response is an error', async () => {
    const url = web.on('/a', (response) => response.destroy());
    expect(await failure(get(url))).toBe(`GET ${url} failed: the connection was reset`);
  });

  it.each([
    ['something else', 'SSH-2.0-OpenSSH_9.2\r\n', 'the response is not HTTP'],
    [
      'endless headers',
      `HTTP/1.1 200 OK\r\nx: ${'y'.repeat(100_000)}\r\n`,
      'the headers of the response are too long',
    ],
    [
      'another protocol unasked',
      'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n',
      'the connection was closed without an answer',
    ],
  ])('%s is an error', async (_, answer, reason) => {
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () => socket.write(answer));
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    try {
      expect(await failure(get(url))).toBe(`GET ${url} failed: ${reason}`);
    } finally {
      server.close();
    }
  });

  it('a closed port is an error', async () => {
    const url = 'http://127.0.0.1:1/';
    expect(await failure(get(url))).toBe(`GET ${url} failed: the connection was refused`);
  });

  it('a server without TLS behind https is an error', async () => {
    const url = web.origin.replace('http:', 'https:');
    expect(await failure(get(url))).toBe(`GET ${url}/ failed: the server does not speak TLS`);
  });

  const openssl = findOnPath('openssl');
  const reason = openssl ? '' : ' [openssl is not on PATH]';
  (openssl ? it : it.skip)(`an untrusted certificate is refused${reason}`, async () => {
    const server = https.createServer(selfSigned(), (_request, response) => response.end('secret'));
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    try {
      // Node 24 adds a hint.
      expect(await failure(get(url))).toContain(
        `GET ${url} failed: the TLS connection failed (self-signed certificate`,
      );
    } finally {
      server.close();
    }
  });

  it('a name that does not exist is an error', async () => {
    const resolve: FetcherOptions['resolve'] = (_host, _options, callback) =>
      callback(Object.assign(new Error('getaddrinfo ENOTFOUND nowhere.test'), { code: 'ENOTFOUND' }), []);
    expect(await failure(get('http://nowhere.test/', { resolve }))).toBe(
      'GET http://nowhere.test/ failed: no such host',
    );
    expect(
      await failure(get('http://nowhere.test/', { resolve: (_h, _o, callback) => callback(null, []) })),
    ).toBe('the host nowhere.test has no address');
  });
});

describe('time', () => {
  it('a server that never answers fails after the maximum silence', async () => {
    const clock = new ManualClock();
    const url = web.on('/slow', () => {});
    const message = failure(get(url, { clock, silenceMs: 10_000 }));
    await until(() => web.asked.length === 1, 'the request has arrived');
    clock.advance(9_999);
    expect(web.open.size).toBe(1);
    clock.advance(1);
    expect(await message).toBe(`GET ${url} sent nothing for 10s`);
    await until(() => web.open.size === 0, 'the connection is closed');
    expect(clock.timersMs).toEqual([]);
  });

  it('a body that stops in the middle fails after the maximum silence', async () => {
    const clock = new ManualClock();
    const url = web.on('/slow', (response) => void response.writeHead(200).write('x'));
    let read = 0;
    const message = failure(
      fetcher({ clock }).get(url, request(), async ({ body }) => {
        for await (const chunk of body) read += chunk.length;
      }),
    );
    await until(() => read === 1 && clock.timersMs.length === 2, 'it waits for more');
    clock.advance(10_000);
    expect(await message).toBe(`GET ${url} sent nothing for 10s`);
  });

  it.each([
    ['silence', 'sent nothing for 10s', (clock: ManualClock) => clock.advance(10_000)],
    ['the caller’s signal', 'was aborted: stop', (_: ManualClock, stop: () => void) => stop()],
  ])('rejects a body without a length that is cut off by %s', async (_name, how, cutOff) => {
    const clock = new ManualClock();
    const caller = new AbortController();
    // Neither a length nor chunks: the body ends where the connection is closed.
    const url = web.on('/slow', ({ socket }) =>
      socket?.write('HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhalf a page'),
    );
    let read = 0;
    const message = failure(
      fetcher({ clock }).get(url, request({ signal: caller.signal }), async ({ body }) => {
        for await (const chunk of body) read += chunk.length;
      }),
    );
    await until(() => read > 0 && clock.timersMs.length === 2, 'it waits for more');
    cutOff(clock, () => caller.abort(new Error('stop')));
    expect(await message).toBe(`GET ${url} ${how}`);
  });

  it('a body that drips fails at the total time', async () => {
    const clock = new ManualClock();
    let drip = () => {};
    const url = web.on('/drip', (response) => {
      response.writeHead(200);
      drip = () => void response.write('x');
      drip();
    });
    let read = 0;
    const message = failure(
      fetcher({ clock }).get(url, request(), async ({ body }) => {
        for await (const chunk of body) read += chunk.length;
      }),
    );
    for (let bytes = 1; bytes <= 3; bytes += 1) {
      await until(() => read === bytes && clock.timersMs.length === 2, `${bytes} bytes have come`);
      clock.advance(9_000);
      drip();
    }
    await until(() => read === 4 && clock.timersMs.length === 2, 'the last has come');
    clock.advance(3_000);
    expect(await message).toBe(`GET ${url} took longer than 30s`);
  });

  it('the time of a slow reader does not count as silence of the server', async () => {
    const clock = new ManualClock();
    let finish = () => {};
    const url = web.on('/a', (response) => {
      response.writeHead(200).write('x');
      finish = () => void response.end('y');
    });
    const body = await fetcher({ clock }).get(url, request(), async (answer) => {
      let read = '';
      for await (const chunk of answer.body) {
        if (read === '') clock.advance(10_001);
        read += chunk.toString();
        finish();
      }
      return read;
    });
    expect(body).toBe('xy');
  });

  it('redirects share one total time', async () => {
    const clock = new ManualClock();
    const slow = web.on('/slow', () => {});
    const url = web.on('/a', (response) => {
      clock.advance(9_000);
      response.writeHead(302, { location: '/slow' }).end();
    });
    const message = failure(get(url, { clock, totalMs: 12_000, silenceMs: 10_000 }));
    await until(() => web.asked.includes('/slow'), 'the redirect was followed');
    clock.advance(3_000);
    expect(await message).toBe(`GET ${url} took longer than 12s`);
    expect(slow).toContain('/slow');
  });

  it('the caller can abort before, during and after', async () => {
    const url = web.on('/slow', () => {});
    const before = AbortSignal.abort(new Error('the claim is lost'));
    expect(await failure(get(url, {}, { signal: before }))).toBe(`GET ${url} was aborted: the claim is lost`);
    expect(web.asked).toEqual([]);

    const during = new AbortController();
    const message = failure(get(url, {}, { signal: during.signal }));
    await until(() => web.asked.length === 1, 'the request has arrived');
    during.abort(new Error('the claim is lost'));
    expect(await message).toBe(`GET ${url} was aborted: the claim is lost`);
    await until(() => web.open.size === 0, 'the connection is closed');

    const inBody = new AbortController();
    const half = web.on('/half', (response) => void response.writeHead(200).write('x'));
    const reading = fetcher().get(half, request({ signal: inBody.signal }), async ({ body }) => {
      for await (const _ of body) inBody.abort(new Error('the claim is lost'));
    });
    expect(await failure(reading)).toBe(`GET ${half} was aborted: the claim is lost`);
    await until(() => web.open.size === 0, 'the connection is closed');
  });
});

describe('redirects', () => {
  const redirect = (path: string, location: string, status = 302) =>
    web.on(path, (response) => response.writeHead(status, { location }).end('moved'));

  it.each([301, 302, 303, 307, 308])('%d is followed, relative or not', async (status) => {
    redirect('/a', '/b?c=d', status);
    redirect('/b?c=d', `${web.origin}/end#part`, status);
    web.on('/end', 'here');
    const answer = await fetcher().get(`${web.origin}/a`, request(), async (one) => [
      one.url,
      await text(one),
    ]);
    expect(answer).toEqual([`${web.origin}/end`, 'here']);
  });

  it('a loop is detected when it closes', async () => {
    redirect('/a', '/b');
    redirect('/b', '/a');
    expect(await failure(get(`${web.origin}/a`))).toBe(
      `GET ${web.origin}/b redirects in a loop, to ${web.origin}/a`,
    );
    redirect('/self', '/self');
    expect(await failure(get(`${web.origin}/self`))).toContain('redirects in a loop');
    expect(web.asked).toEqual(['/a', '/b', '/self']);
  });

  it('an endless chain ends after maxRedirects', async () => {
    for (let n = 0; n < 10; n += 1) redirect(`/${n}`, `/${n + 1}`);
    expect(await failure(get(`${web.origin}/0`, { maxRedirects: 3 }))).toBe(
      `GET ${web.origin}/0 redirects more than 3 times`,
    );
    expect(web.asked).toEqual(['/0', '/1', '/2', '/3']);
    web.on('/10', 'end');
    expect(await get(`${web.origin}/7`, { maxRedirects: 3 })).toBe('end');
  });

  it.each([
    ['file:///etc/passwd', 'file:// is neither http nor https'],
    ['gopher://x/', 'gopher:// is neither http nor https'],
    ['http://user:secret@127.0.0.1/', 'contains a user name or a password'],
    ['http://', 'not an absolute URL'],
  ])('to %s is refused', async (location, problem) => {
    const url = redirect('/a', location);
    expect(await failure(get(url))).toBe(`GET ${url} redirects to ${location}: ${problem}`);
  });

  it('without a Location is an error', async () => {
    const url = web.on('/a', (response) => response.writeHead(302).end());
    expect(await failure(get(url))).toBe(`GET ${url} answered 302 without a Location`);
  });

  it('to an unescaped UTF-8 path finds the page', async () => {
    redirect('/a', Buffer.from('/grüße').toString('latin1'));
    web.on(encodeURI('/grüße'), 'hello');
    expect(await get(`${web.origin}/a`)).toBe('hello');
  });
});

describe('private addresses', () => {
  const remedy = '(set RECORDS_ALLOW_PRIVATE_ADDRESSES=true to allow)';
  const careful = { allowPrivateAddresses: false };
  const answering =
    (...addresses: string[]): NonNullable<FetcherOptions['resolve']> =>
    (_host, _options, callback) =>
      callback(
        null,
        addresses.map((address): LookupAddress => ({ address, family: address.includes(':') ? 6 : 4 })),
      );

  it.each([
    ['http://10.0.0.8/', '10.0.0.8 is a private'],
    ['http://127.0.0.1:{port}/', '127.0.0.1 is a loopback'],
    ['http://127.1:{port}/', '127.0.0.1 is a loopback'],
    ['http://2130706433:{port}/', '127.0.0.1 is a loopback'],
    ['http://0x7f.0.0.1:{port}/', '127.0.0.1 is a loopback'],
    ['http://0177.0.0.1:{port}/', '127.0.0.1 is a loopback'],
    ['http://127.0.0.1.:{port}/', '127.0.0.1 is a loopback'],
    ['http://１２７.0.0.1:{port}/', '127.0.0.1 is a loopback'],
    ['http://0:{port}/', '0.0.0.0 is an unspecified'],
    ['http://169.254.169.254/latest/meta-data/', '169.254.169.254 is a link-local'],
    ['http://[::1]:{port}/', '::1 is a loopback'],
    ['http://[::ffff:127.0.0.1]:{port}/', '::ffff:7f00:1 is a loopback'],
    ['http://[64:ff9b::7f00:1]:{port}/', '64:ff9b::7f00:1 is a loopback'],
    ['https://[fd00::1]/', 'fd00::1 is a private'],
  ])('%s is refused without a connection', async (url, kind) => {
    const message = await failure(get(url.replace('{port}', String(web.port)), careful));
    expect(message).toBe(`refused: ${kind} address ${remedy}`);
    expect(web.asked).toEqual([]);
  });

  it('a name that resolves to one is refused', async () => {
    const url = `http://inside.test:${web.port}/`;
    expect(await failure(get(url, { ...careful, resolve: answering('10.0.0.8') }))).toBe(
      `refused: inside.test is 10.0.0.8, a private address ${remedy}`,
    );
    expect(
      await failure(get(`http://localhost:${web.port}/`, { ...careful, resolve: systemResolve })),
    ).toMatch(/^refused: localhost is (127\.0\.0\.1|::1), a loopback address/);
    expect(web.asked).toEqual([]);
  });

  it('only the allowed addresses of a name are connected to', async () => {
    web.on('/', 'found');
    const mixed = answering('10.0.0.8', '127.0.0.1', '::1');
    const url = `http://mixed.test:${web.port}/`;
    expect(await get(url, { allowPrivateAddresses: ['127.0.0.1'], resolve: mixed })).toBe('found');

    const given: unknown[] = [];
    const lookup = guardedLookup(answering('127.0.0.1', '1.1.1.1', '::1', '2606:4700::1111'), false);
    lookup('mixed.test', { all: true }, (_error, addresses) => given.push(addresses));
    lookup('mixed.test', {}, (_error, address) => given.push(address));
    const all = [
      { address: '1.1.1.1', family: 4 },
      { address: '2606:4700::1111', family: 6 },
    ];
    expect(given).toEqual([all, '1.1.1.1']);
  });

  it('a name is resolved once per connection, so it cannot change after the check', async () => {
    web.on('/', 'first answer');
    let lookups = 0;
    const resolve: FetcherOptions['resolve'] = (host, options, callback) => {
      lookups += 1;
      answering(lookups === 1 ? '127.0.0.1' : '127.0.0.2')(host, options, callback);
    };
    expect(await get(`http://rebinding.test:${web.port}/`, { resolve })).toBe('first answer');
    expect(lookups).toBe(1);
  });

  it('every redirect is checked, by address and by name', async () => {
    const oneAllowed = { allowPrivateAddresses: ['127.0.0.1'], resolve: answering('127.0.0.2') };
    const toAddress = web.on('/a', (response) =>
      response.writeHead(302, { location: 'http://10.0.0.8/' }).end(),
    );
    expect(await failure(get(toAddress, oneAllowed))).toBe(
      `refused: 10.0.0.8 is a private address ${remedy}`,
    );
    const location = `http://inside.test:${web.port}/`;
    const toName = web.on('/b', (response) => response.writeHead(302, { location }).end());
    expect(await failure(get(toName, oneAllowed))).toBe(
      `refused: inside.test is 127.0.0.2, a loopback address ${remedy}`,
    );
    expect(web.asked).toEqual(['/a', '/b']);
  });

  it('an allowed name is connected to its resolved address', async () => {
    web.on('/', 'inside');
    const url = `http://inside.test:${web.port}/`;
    expect(await get(url, { resolve: answering('127.0.0.1') })).toBe('inside');
    expect(web.requests[0]?.headers.host).toBe(`inside.test:${web.port}`);
  });
});

describe('URLs', () => {
  it.each([
    ['', 'not an absolute URL'],
    ['/relative', 'not an absolute URL'],
    ['ftp://example.com/', 'ftp:// is neither http nor https'],
    ['javascript:alert(1)', 'javascript:// is neither http nor https'],
    ['https://user@example.com/', 'contains a user name or a password'],
    [`https://example.com/${'x'.repeat(3000)}`, 'longer than 2048 characters'],
  ])('%.40s cannot be fetched', async (url, problem) => {
    const message = await failure(get(url));
    expect(message).toMatch(/^cannot fetch /);
    expect(message.endsWith(`: ${problem}`)).toBe(true);
    expect(message.length).toBeLessThan(400);
  });
});

/** Any arguments, before a router that answers anything: an exit code from the list, and a line that says why. */

import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Command } from 'commander';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { RouterApi } from '../../src/cli/api.js';
import type { Cli } from '../../src/cli/cli.js';
import { follow, isAfter } from '../../src/cli/event-stream.js';
import { exitCodeMeanings } from '../../src/cli/failure.js';
import { run } from '../../src/cli/index.js';
import { Output } from '../../src/cli/output.js';
import { createProgram } from '../../src/cli/program.js';
import type { RouterEvent } from '../../src/cli/replies.js';
import { systemClock } from '../../src/clock.js';
import { capture } from '../cli/capture.js';
import { secrets } from './answers.js';
import { fuzzing, fuzzingAtOnce } from './runs.js';
import { damaged, jsonOf, oddJson, oddText, orOdd, some } from './values.js';

let server: Server;
let url = '';
let answer: (response: ServerResponse) => void;
const cwd = process.cwd();
/** `merchants export` writes a file of any name. */
const folder = mkdtempSync(join(tmpdir(), 'smart-router-fuzz-'));
beforeAll(async () => {
  process.chdir(folder);
  server = createServer((request, response) => {
    request.resume();
    answer(response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => {
  process.chdir(cwd);
  rmSync(folder, { recursive: true });
  server.close();
  server.closeAllConnections();
});

interface Leaf {
  path: string[];
  options: { flag: string; takesValue: boolean }[];
}

/** Those that start something, stay, or look at this machine have tests of their own. */
const leftOut = /^(serve|demo|doctor|top)\b/;
const stays = new Set(['--follow', '-f', '--wait', '--watch', '-w']);

function leavesOf(command: Command, path: string[] = []): Leaf[] {
  if (command.commands.length > 0)
    return command.commands.flatMap((each) => leavesOf(each, [...path, each.name()]));
  const options = command.options.map(({ long, short, required, optional }) => ({
    flag: long ?? short ?? '',
    takesValue: required || optional,
  }));
  return leftOut.test(path.join(' '))
    ? []
    : [{ path, options: options.filter(({ flag }) => !stays.has(flag)) }];
}

function allLeaves(): Leaf[] {
  const { streams } = capture();
  const cli: Cli = {
    env: {},
    clock: systemClock,
    output: new Output(streams, {}),
    exitCode: 0,
    resident: false,
  };
  return leavesOf(createProgram(cli));
}

/** A program gets no NUL and no half characters in its arguments, and a file is not read by accident. */
const argument = oddText.map((text) =>
  Buffer.from(text.replaceAll('\0', ''))
    .toString()
    .replace(/^[./~]+/, ''),
);
const value = fc.oneof(
  fc.constantFrom(
    'CA1',
    'gold-1',
    'acme',
    '10',
    '1s',
    '5m',
    'pool:gold',
    '{"gold":1}',
    '{}',
    '[1',
    '-',
    '0',
    '-1',
  ),
  argument,
);

const argumentsOf = ({ path, options }: Leaf): fc.Arbitrary<string[]> => {
  const option =
    options.length === 0
      ? fc.constant<string[]>([])
      : fc
          .tuple(fc.constantFrom(...options), value)
          .map(([{ flag, takesValue }, text]) => (takesValue ? [flag, text] : [flag]));
  const extra = fc.oneof(
    value.map((text) => [text]),
    option,
    fc.constantFrom(['--json'], ['--'], ['--help']),
  );
  return fc.array(extra, { maxLength: 4 }).map((extras) => [...path, ...extras.flat()]);
};

const said = some({
  success: orOdd(fc.constant(true)),
  error: orOdd(fc.constant('no such thing')),
  code: orOdd(fc.constantFrom('call_not_found', 'internal', 'new_code')),
  problems: oddJson,
  status: orOdd(fc.constant('up')),
  pools: oddJson,
  pods: oddJson,
  calls: oddJson,
  events: oddJson,
  tiers: oddJson,
  merchants: oddJson,
  workflows: oddJson,
  held: oddJson,
  pod_name: oddJson,
  cursor: orOdd(fc.constant(null), 20),
  before: orOdd(fc.constant(null), 20),
  lease_expires_at: oddJson,
});

describe('the command line', () => {
  it('ends with a code from the list, one line for people, or one document for scripts', async () => {
    const leaves = allLeaves();
    expect(leaves.length).toBeGreaterThan(20);
    const args = fc.oneof(
      { weight: 8, arbitrary: fc.oneof(...leaves.map(argumentsOf)) },
      {
        weight: 1,
        arbitrary: fc.array(
          argument.filter((text) => !leftOut.test(text)),
          { maxLength: 4 },
        ),
      },
    );
    const body = fc.oneof(jsonOf(said), damaged(jsonOf(said)), oddText);
    const status = fc.constantFrom(200, 200, 400, 401, 404, 500, 503);
    await fc.assert(
      fc.asyncProperty(args, body, status, async (args, body, status) => {
        answer = (response) => response.writeHead(status, { 'content-type': 'application/json' }).end(body);
        const { streams, out, err } = capture({ input: '{"gold":1}' });
        const env = { SMART_ROUTER_URL: url, SMART_ROUTER_ADMIN_KEY: secrets.SMART_ROUTER_ADMIN_KEY };
        const code = await run(args, env, { streams });
        const shown = `${out()}\n${err()}`;
        expect(Object.keys(exitCodeMeanings)).toContain(String(code));
        expect(shown).not.toMatch(/^\s+at .*[:(]\d+/m);
        expect(shown).not.toContain(secrets.SMART_ROUTER_ADMIN_KEY);
        expect(shown).not.toContain('unexpected error');
        // Nothing that moves the cursor of a terminal or renames its window.
        expect(shown).not.toContain('\u001b');
        if (code !== 0) expect(shown.trim()).not.toBe('');
        const end = args.indexOf('--');
        const isJson = args.slice(0, end < 0 ? undefined : end).includes('--json');
        if (isJson && code !== 0 && !shown.includes('Usage:'))
          expect(JSON.parse(out())).toHaveProperty('success', false);
      }),
      fuzzing(150),
    );
  });
});

const good: RouterEvent = {
  id: '1999999999999-7',
  type: 'call_allocated',
  at: '2033-05-18T03:33:19.999Z',
  call: 'CA1',
};
const block = fc.oneof(
  { weight: 3, arbitrary: jsonOf(oddJson).map((text) => `data: ${text}`) },
  {
    weight: 3,
    arbitrary: jsonOf(
      some({
        id: orOdd(fc.constantFrom('5-0', '6-1', '99999999999999999999-1')),
        type: oddJson,
        at: oddJson,
      }),
    ).map((text) => `id: 1-1\ndata: ${text}`),
  },
  { weight: 1, arbitrary: oddText },
  { weight: 1, arbitrary: oddText.map((text) => `:${text}`) },
  { weight: 1, arbitrary: oddText.map((text) => `data:${text}\ndata: x`) },
);
/** Blocks end with an empty line and contain none. */
const stream = fc.array(
  block.map((text) => text.replace(/\n{2,}/g, '\n').replace(/^\n|\n$/g, '')),
  { maxLength: 6 },
);
const inPieces = async (response: ServerResponse, text: string, length: number) => {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += length) response.write(bytes.subarray(at, at + length));
};

describe('a stream of events with anything in it', () => {
  it('gives the command line every event that is one, in order', async () => {
    await fc.assert(
      fc.asyncProperty(stream, fc.integer({ min: 1, max: 200 }), async (blocks, length) => {
        const text = [
          ...blocks,
          `id: ${good.id}\nevent: ${good.type}\ndata: ${JSON.stringify(good)}`,
          '',
        ].join('\n\n');
        answer = (response) => {
          response.writeHead(200, { 'content-type': 'text/event-stream' });
          void inPieces(response, text, length);
        };
        const api = new RouterApi({ baseUrl: url, key: undefined, timeoutMs: 5000, clock: systemClock });
        const over = new AbortController();
        const heard: RouterEvent[] = [];
        await follow(api, systemClock, {
          since: '0-0',
          signal: over.signal,
          onEvent: (event) => {
            heard.push(event);
            if (event.id === good.id || isAfter(event.id, good.id)) over.abort();
          },
        });
        api.close();
        const ids = heard.map(({ id }) => id);
        expect(ids.every((id, i) => i === 0 || isAfter(id, ids[i - 1] ?? ''))).toBe(true);
        if (!ids.some((id) => isAfter(id, good.id))) expect(heard.at(-1)).toEqual(good);
      }),
      fuzzing(50),
    );
  });

  it('gives the console every event that is one', async () => {
    // Made for a browser, and so not for the compiler of these tests.
    const path = '../../console/src/live/stream.js';
    const { followEvents } = (await import(path)) as {
      followEvents(listener: {
        opened(): void;
        heard(events: RouterEvent[]): void;
        broke(error: unknown): void;
      }): { stop(): void };
    };
    const fetched = globalThis.fetch;
    vi.stubGlobal('fetch', (_: unknown, options?: RequestInit) => fetched(url, options));
    vi.stubGlobal('document', new EventTarget());
    try {
      await fc.assert(
        fc.asyncProperty(stream, fc.integer({ min: 1, max: 200 }), async (blocks, length) => {
          const text = [...blocks, `id: ${good.id}\ndata: ${JSON.stringify(good)}`, ''].join('\n\n');
          answer = (response) => {
            response.writeHead(200, { 'content-type': 'text/event-stream' });
            void inPieces(response, text, length);
          };
          const event = await new Promise<RouterEvent>((resolve, reject) => {
            const following = followEvents({
              opened: () => undefined,
              heard: (events) => {
                const found = events.find(({ id }) => id === good.id);
                if (!found) return;
                following.stop();
                resolve(found);
              },
              broke: (error) => {
                following.stop();
                reject(error);
              },
            });
          });
          expect(event).toEqual(good);
        }),
        fuzzing(50),
      );
    } finally {
      vi.unstubAllGlobals();
    }
  });

  it('has ids of any length that are compared', () => {
    const id = fc.tuple(fc.bigInt({ min: 0n, max: 10n ** 20n }), fc.bigInt({ min: 0n, max: 10n ** 20n }));
    fc.assert(
      fc.property(id, id, (a, b) => {
        const [first, second] = [a.join('-'), b.join('-')];
        expect(isAfter(first, second)).toBe(a[0] === b[0] ? a[1] > b[1] : a[0] > b[0]);
      }),
      fuzzingAtOnce(500),
    );
  });
});

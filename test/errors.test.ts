/** Any thrown value becomes a text: in messages, in the log, on the command line, over HTTP. */

import { describe, expect, it } from 'vitest';
import { toFailure } from '../src/cli/failure.js';
import { messageOf, messageWithCauseOf } from '../src/errors.js';
import { createLogger } from '../src/observe/log.js';

const hostile = () => {
  throw new Error('no text of this');
};
const itself = new AggregateError([], 'contains itself');
itself.errors.push(itself);
const circle = new Error('first', { cause: new Error('second') });
(circle.cause as Error).cause = circle;

const thrown: [name: string, value: unknown, text: string][] = [
  ['a lone surrogate', new Error('a \ud83d b'), 'a \ufffd b'],
  ['a pair', new Error('a 😀 b'), 'a 😀 b'],
  ['NUL', 'a\0b', 'ab'],
  ['a long text', 'x'.repeat(1e6), 'x'.repeat(8192)],
  ['an AggregateError that contains itself', itself, 'contains itself'],
  ['one error per address', new AggregateError([new Error('refused')]), 'refused'],
  ['a circle of causes', circle, 'first'],
  ['nothing', null, 'null'],
  ['an empty text', '', 'failed without a message'],
  ['an object without toString', Object.create(null), 'failed without a message'],
  ['toString that throws', { toString: hostile }, 'failed without a message'],
  [
    'a message that throws',
    Object.defineProperty(new Error(), 'message', { get: hostile }),
    'failed without a message',
  ],
  [
    'a Proxy that throws',
    new Proxy(new Error(), { get: hostile, getPrototypeOf: hostile }),
    'failed without a message',
  ],
];

describe.each(thrown)('%s', (_, value, text) => {
  it('becomes a text', () => {
    expect(messageOf(value)).toBe(text);
    expect(messageWithCauseOf(value)).toBe(value === circle ? 'first: second' : text);
    expect(toFailure(value).message).toContain(text.slice(0, 100).trim());
  });

  it('is logged as one line', () => {
    const lines: string[] = [];
    const log = createLogger({
      level: 'info',
      format: 'json',
      destination: { write: (line) => void lines.push(line) },
    });
    log.error({ err: value }, 'failed');
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([{ msg: 'failed', err: { message: text } }]);
  });
});

describe('the message of the cause', () => {
  it('follows the message of a failed fetch', async () => {
    const failure: unknown = await fetch('http://127.0.0.1:1').catch((error) => error);
    expect(messageWithCauseOf(failure)).toMatch(/^fetch failed: .+/);
  });

  it('is left out if the message contains it or it is not an Error', () => {
    expect(messageWithCauseOf(new Error('no session: closed', { cause: new Error('closed') }))).toBe(
      'no session: closed',
    );
    expect(messageWithCauseOf(new Error('failed', { cause: {} }))).toBe('failed');
  });
});

/** Values of arguments and options: numbers, durations, and JSON as text, in a file, or in standard input. */
import { readFile } from 'node:fs/promises';
import { Argument, InvalidArgumentError, Option } from 'commander';
import { parseDuration } from '../config/durations.js';
import type { Cli } from './cli.js';
import { Failure, oneLine } from './failure.js';

export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d{1,16}$/.test(text) && value >= min && value <= max) return value;
    throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`);
  };
}

/** Parses an option's duration to milliseconds. */
export function duration(minMs: number, maxMs: number): (text: string) => number {
  return (text) => {
    const value = parseDuration(text);
    if (value !== undefined && value >= minMs && value <= maxMs) return value;
    throw new InvalidArgumentError('It must be a duration like 500ms, 30s or 5m.');
  };
}

export const poolOption = new Option('--pool <pool>', 'only this pool: gold, or merchant:acme');
export const limitOption = new Option('--limit <n>', 'show at most this many').argParser(
  wholeNumber(1, 10_000_000),
);

export const jsonArgument = new Argument('<file|-|json>', 'a file, - for standard input, or the JSON itself');

/** The router's limit for a request body. */
const routerMaxBytes = 64 * 1024;

export async function readJson(
  cli: Cli,
  argument: string,
  maxBytes = routerMaxBytes,
): Promise<{ value: unknown; from: string }> {
  const { text, from } = await readText(cli, argument, maxBytes);
  if (Buffer.byteLength(text) > maxBytes) {
    const router = maxBytes === routerMaxBytes ? ', the maximum of the router' : '';
    throw new Failure('usage', `${from} is larger than ${maxBytes / 1024} KiB${router}`);
  }
  try {
    // A file saved on Windows may begin with a byte order mark.
    return { value: JSON.parse(text.replace(/^\ufeff/, '')), from };
  } catch (error) {
    throw new Failure('usage', `${from} is not valid JSON: ${oneLine((error as Error).message)}`);
  }
}

const readProblems: Readonly<Record<string, string | undefined>> = {
  ENOENT: 'no such file',
  EISDIR: 'it is a directory',
  EACCES: 'permission denied',
};

async function readText(
  cli: Cli,
  argument: string,
  maxBytes: number,
): Promise<{ text: string; from: string }> {
  if (/^\s*[{["]/.test(argument)) return { text: argument, from: 'the argument' };
  if (argument === '-') {
    const { stdin } = cli.output.streams;
    if (stdin.isTTY) cli.output.err('reading JSON from the terminal; end it with Ctrl-D');
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of stdin) {
      chunks.push(Buffer.from(chunk));
      bytes += chunk.length;
      if (bytes > maxBytes) break;
    }
    return { text: Buffer.concat(chunks).toString('utf8'), from: 'standard input' };
  }
  try {
    return { text: await readFile(argument, 'utf8'), from: argument };
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException;
    const reason = readProblems[code] ?? oneLine(message);
    throw new Failure(
      'usage',
      `cannot read ${argument}: ${reason}. Give a file, - for standard input, or JSON.`,
    );
  }
}

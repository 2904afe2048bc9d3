/** A JSON argument: the text itself, a file, or `-` for what comes in. */
import { readFile } from 'node:fs/promises';
import type { Cli } from './cli.js';
import { Failure, oneLine } from './failure.js';

/** What the router takes in one request. */
const usualBytes = 64 * 1024;

export async function readJson(
  cli: Cli,
  argument: string,
  mostBytes = usualBytes,
): Promise<{ value: unknown; from: string }> {
  const { text, from } = await readText(cli, argument, mostBytes);
  if (Buffer.byteLength(text) > mostBytes) {
    const router = mostBytes === usualBytes ? ', which is more than the router takes' : '';
    throw new Failure('usage', `${from} is larger than ${mostBytes / 1024} KiB${router}`);
  }
  try {
    // A file saved on Windows may begin with a byte order mark.
    return { value: JSON.parse(text.replace(/^\ufeff/, '')), from };
  } catch (error) {
    throw new Failure('usage', `${from} is not valid JSON: ${oneLine((error as Error).message)}`);
  }
}

async function readText(
  cli: Cli,
  argument: string,
  mostBytes: number,
): Promise<{ text: string; from: string }> {
  if (/^\s*[{["]/.test(argument)) return { text: argument, from: 'the argument' };
  if (argument === '-') {
    const { stdin } = cli.screen;
    if (stdin.isTTY) cli.screen.err('reading JSON from the terminal: end it with Ctrl-D');
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of stdin) {
      chunks.push(Buffer.from(chunk));
      bytes += chunk.length;
      if (bytes > mostBytes) break;
    }
    return { text: Buffer.concat(chunks).toString('utf8'), from: 'standard input' };
  }
  try {
    return { text: await readFile(argument, 'utf8'), from: argument };
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const reason =
      code === 'ENOENT'
        ? 'there is no such file'
        : code === 'EISDIR'
          ? 'it is a folder'
          : code === 'EACCES'
            ? 'it may not be read'
            : oneLine((error as Error).message);
    throw new Failure(
      'usage',
      `cannot read ${argument}: ${reason}. Give a file, - for standard input, or JSON.`,
    );
  }
}

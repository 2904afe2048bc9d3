import type { Streams } from '../../src/cli/output.js';

/** Streams that record their output; `tty` makes them terminals. */
export function capture({ tty = false, input = '' } = {}): {
  streams: Streams;
  out(): string;
  err(): string;
} {
  const texts = { out: '', err: '' };
  const stream = (name: 'out' | 'err') => ({
    isTTY: tty,
    columns: 100,
    write(text: string) {
      texts[name] += text;
      return true;
    },
  });
  const stdin = (async function* () {
    yield input;
  })();
  return {
    streams: { stdin, stdout: stream('out'), stderr: stream('err') },
    out: () => texts.out,
    err: () => texts.err,
  };
}

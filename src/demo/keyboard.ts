/**
 * Where commands come from. A terminal that shows the stage gives single keys; anything else gives lines, and the end
 * of the input (a pipe that closes, /dev/null) means only that no more will come.
 */
import { createInterface } from 'node:readline';
import type { ReadStream } from 'node:tty';

const interrupts = ['\u0003', '\u0004'];

/** The result gives the input back as it was. */
export function readKeys(
  input: ReadStream,
  onKey: (key: string) => void,
  onInterrupt: () => void,
): () => void {
  const hear = (text: string) => {
    if (interrupts.some((code) => text.includes(code))) return onInterrupt();
    // An arrow or function key comes as an escape and more: none of ours.
    if (!text.startsWith('\u001b')) for (const key of text) onKey(key.toLowerCase());
  };
  input.setRawMode(true);
  input.setEncoding('utf8').on('data', hear);
  return () => {
    input.off('data', hear);
    input.setRawMode(false);
    input.pause();
  };
}

export function readLines(input: NodeJS.ReadableStream, onLine: (line: string) => void): () => void {
  const lines = createInterface({ input });
  lines.on('line', (line) => {
    const text = line.trim();
    if (text !== '') onLine(text);
  });
  // A broken input is an input that has ended.
  input.on('error', () => lines.close());
  return () => lines.close();
}

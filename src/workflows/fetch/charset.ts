/**
 * Which characters the bytes of a page or a sitemap are: byte order mark, then the header, then what the document says
 * about itself, then UTF-8 if the bytes are that, else windows-1252, as browsers do. Never throws; bytes that mean
 * nothing become U+FFFD.
 */
import { type Chunks, peek } from './body.js';

/** HTML asks for the first 1,024 bytes; some pages have a long script before it. */
const headBytes = 4_096;
const fallback = 'windows-1252';

export async function* decodedText(chunks: Chunks, contentType: string | undefined): AsyncGenerator<string> {
  const { head, all } = await peek(chunks, headBytes);
  const decoder = new TextDecoder(charsetOf(head, contentType));
  for await (const chunk of all) {
    const text = decoder.decode(chunk, { stream: true });
    if (text !== '') yield text;
  }
  const rest = decoder.decode();
  if (rest !== '') yield rest;
}

export function charsetOf(head: Buffer, contentType: string | undefined): string {
  if (head[0] === 0xef && head[1] === 0xbb && head[2] === 0xbf) return 'utf-8';
  if (head[0] === 0xff && head[1] === 0xfe) return 'utf-16le';
  if (head[0] === 0xfe && head[1] === 0xff) return 'utf-16be';
  const [, fromHeader] = /;\s*charset\s*=\s*["']?([^\s;"']+)/i.exec(contentType ?? '') ?? [];
  const start = head.subarray(0, headBytes).toString('latin1');
  const [, fromXml] = /^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([^\s"'>]+)/i.exec(start) ?? [];
  const [, fromMeta] = /<meta\b[^>]{0,400}?charset\s*=\s*["']?([^\s;"'/>]+)/i.exec(start) ?? [];
  const said = [fromXml, fromMeta].map(known).find((label) => label !== undefined);
  // Read as ASCII a moment ago, so it cannot be UTF-16, whatever it says.
  return known(fromHeader) ?? (said?.startsWith('utf-16') ? 'utf-8' : said) ?? guess(head);
}

function known(label: string | undefined): string | undefined {
  if (label === undefined) return undefined;
  try {
    return new TextDecoder(label).encoding;
  } catch {
    return undefined;
  }
}

/** The end of `head` may lie inside a character, which is no reason to think that the text is not UTF-8. */
function guess(head: Buffer): string {
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(head, { stream: true });
    return 'utf-8';
  } catch {
    return fallback;
  }
}

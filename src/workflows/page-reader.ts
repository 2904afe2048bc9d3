/**
 * Extracts title, description, visible text and links of a page. Runs no scripts, and never fails on broken HTML, only
 * when its work is aborted (work-slices.ts). Entities are decoded, white space is collapsed, every result has a maximum size.
 *
 * A page nested deeper than browsers show (512) is read up to that depth: the parser's time grows with the square of
 * the depth, and 5 MB of `<div>` would block the process for minutes.
 */
import { Parser } from 'htmlparser2';
import { maxUrlLength } from './fetch/urls.js';
import type { WorkSlices } from './work-slices.js';

export interface Page {
  readonly title: string | undefined;
  readonly description: string | undefined;
  /** Blocks (paragraphs, cells, list items) on lines of their own. */
  readonly text: string;
  /** `href` of every link, unchanged. */
  readonly links: readonly string[];
}

const maxDepth = 512;
const maxTitleLength = 512;
const maxDescriptionLength = 2_048;
const maxTextLength = 1_000_000;
const maxLinks = 5_000;

const descriptions = ['description', 'og:description', 'twitter:description'] as const;
const wanted = new Set<string>(['og:title', ...descriptions]);
/** Elements whose content is not visible. */
const hidden = new Set(['script', 'style', 'template', 'noscript', 'svg', 'iframe', 'object', 'title']);
/** Elements that do not end a word: `info<b>@</b>example.com` is one word. */
const inline = new Set([
  ...['abbr', 'b', 'bdi', 'bdo', 'cite', 'code', 'em', 'font', 'i', 'ins', 'kbd', 'mark', 'q', 's', 'small'],
  ...['span', 'strong', 'sub', 'sup', 'u', 'var', 'wbr'],
]);

/** The parser keeps a stack of these that only their own end tags shorten. */
const foreign = new Set('svg math mi mo mn ms mtext annotation-xml foreignobject desc title'.split(' '));
/** Parsed at once. */
const pieceLength = 16_384;

class TooDeep extends Error {}

export async function readPage(texts: Iterable<string>, work: WorkSlices): Promise<Page> {
  const reader = new Reader();
  const parser = new Parser(reader);
  try {
    for (const piece of piecesOf(texts)) {
      parser.write(piece);
      // At every tag the parser scans its open elements; a tag has at least four characters.
      work.count(piece.length * (1 + reader.depth / 4));
      await work.rest();
    }
    parser.end();
  } catch (error) {
    if (!(error instanceof TooDeep)) throw error;
  }
  return reader.page();
}

function* piecesOf(texts: Iterable<string>): Generator<string> {
  for (const text of texts) {
    for (let at = 0; at < text.length; at += pieceLength) yield text.slice(at, at + pieceLength);
  }
}

class Reader {
  readonly #open: string[] = [];
  readonly #meta = new Map<string, string>();
  readonly #links: string[] = [];
  #foreignDepth = 0;
  #hiddenDepth = 0;
  #title: string | undefined;
  #readsTitle = false;
  #text = '';
  /** The element whose attributes follow; empty: they do not matter. */
  #element = '';
  #metaAttributes: { name?: string; property?: string; content?: string } = {};

  get depth(): number {
    return this.#open.length;
  }

  page(): Page {
    const title = first(maxTitleLength, this.#title, this.#meta.get('og:title'));
    const described = descriptions.map((key) => this.#meta.get(key));
    return {
      title,
      description: first(maxDescriptionLength, ...described),
      text: this.#text,
      links: this.#links,
    };
  }

  onopentagname(name: string): void {
    this.#endMeta();
    this.#open.push(name);
    if (foreign.has(name)) this.#foreignDepth += 1;
    if (this.#open.length > maxDepth || this.#foreignDepth > maxDepth) throw new TooDeep();
    // An SVG may have a title too; the first one outside is the page's.
    this.#readsTitle = name === 'title' && this.#hiddenDepth === 0 && this.#title === undefined;
    if (this.#readsTitle) this.#title = '';
    if (hidden.has(name)) this.#hiddenDepth += 1;
    this.#element = this.#hiddenDepth > 0 ? '' : name;
    if (this.#hiddenDepth === 0 && !inline.has(name)) this.#add('\n');
  }

  /** Singly: one element may have a million attributes. The first of a name counts. */
  onattribute(name: string, value: string): void {
    if (this.#element === 'meta') {
      if (name === 'name' || name === 'property' || name === 'content')
        this.#metaAttributes[name] ??= value.slice(0, maxDescriptionLength * 8);
    } else if (name === 'href' && (this.#element === 'a' || this.#element === 'area')) {
      // Longer ones cannot be fetched.
      if (this.#links.length < maxLinks) this.#links.push(value.trim().slice(0, 4 * maxUrlLength + 1));
      this.#element = '';
    }
  }

  ontext(text: string): void {
    if (this.#readsTitle && (this.#title?.length ?? 0) < maxTitleLength * 4) this.#title += text;
    if (this.#hiddenDepth === 0) this.#add(text.replace(/\s+/g, ' '));
  }

  onclosetag(name: string, isImplied: boolean): void {
    this.#endMeta();
    this.#open.pop();
    this.#readsTitle = false;
    if (foreign.has(name) && !isImplied) this.#foreignDepth -= 1;
    if (hidden.has(name)) this.#hiddenDepth -= 1;
    else if (this.#hiddenDepth === 0 && !inline.has(name)) this.#add('\n');
  }

  #add(text: string): void {
    if (this.#text.length < maxTextLength) this.#text += text;
  }

  #endMeta(): void {
    const { name, property, content = '' } = this.#metaAttributes;
    const key = (name ?? property ?? '').trim().toLowerCase();
    // The first one with content counts.
    if (wanted.has(key) && !this.#meta.has(key) && content.trim() !== '') this.#meta.set(key, content);
    if (this.#element === 'meta') this.#metaAttributes = {};
  }
}

function first(maxLength: number, ...texts: (string | undefined)[]): string | undefined {
  return texts.map((text) => normalised(text ?? '', maxLength)).find((text) => text !== '');
}

/** Removes control characters and lone surrogates: PostgreSQL rejects NUL. */
function normalised(text: string, maxLength: number): string {
  const clean = text
    .slice(0, maxLength * 8)
    .replace(/[\s\p{Cc}\p{Cs}\ufeff\u200b]+/gu, ' ')
    .trim();
  return clean
    .slice(0, maxLength)
    .replace(/\p{Cs}$/u, '')
    .trimEnd();
}

/**
 * What a page says about itself: title, description, visible text, links. Promise: it never throws and never runs
 * anything, however broken the HTML is; entities are decoded, white space is one space, and everything has a bound.
 *
 * A page nested deeper than browsers show (512) is read up to there: the parser's time grows with the square of the
 * depth, and 5 MB of `<div>` would hold up the process for minutes.
 */
import { Parser } from 'htmlparser2';

export interface Page {
  readonly title: string | undefined;
  readonly description: string | undefined;
  /** Blocks (paragraphs, cells, list items) on lines of their own. */
  readonly text: string;
  /** As they are written: `href` of every link. */
  readonly links: readonly string[];
}

const deepest = 512;
const longestTitle = 512;
const longestDescription = 2_048;
const longestText = 1_000_000;
const mostLinks = 5_000;

/** Their content is not shown. */
const hidden = new Set(['script', 'style', 'template', 'noscript', 'svg', 'iframe', 'object', 'title']);
/** These do not end a word: `info<b>@</b>example.com` is one. */
const inline = new Set([
  ...['abbr', 'b', 'bdi', 'bdo', 'cite', 'code', 'em', 'font', 'i', 'ins', 'kbd', 'mark', 'q', 's', 'small'],
  ...['span', 'strong', 'sub', 'sup', 'u', 'var', 'wbr'],
]);

class TooDeep extends Error {}

export function readPage(html: string): Page {
  const reader = new Reader();
  const parser = new Parser(reader);
  try {
    parser.write(html);
    parser.end();
  } catch (error) {
    if (!(error instanceof TooDeep)) throw error;
  }
  return reader.page();
}

class Reader {
  readonly #open: string[] = [];
  readonly #meta = new Map<string, string>();
  readonly #links: string[] = [];
  #hiddenDepth = 0;
  #title: string | undefined;
  #readsTitle = false;
  #text = '';

  page(): Page {
    const title = first(longestTitle, this.#title, this.#meta.get('og:title'));
    const described = ['description', 'og:description', 'twitter:description'].map((key) =>
      this.#meta.get(key),
    );
    return {
      title,
      description: first(longestDescription, ...described),
      text: this.#text,
      links: this.#links,
    };
  }

  onopentag(name: string, attributes: Record<string, string>): void {
    this.#open.push(name);
    if (this.#open.length > deepest) throw new TooDeep();
    // A picture may have a title as well; the first outside of one is the page's.
    this.#readsTitle = name === 'title' && this.#hiddenDepth === 0 && this.#title === undefined;
    if (this.#readsTitle) this.#title = '';
    if (hidden.has(name)) this.#hiddenDepth += 1;
    if (this.#hiddenDepth > 0) return;
    if (!inline.has(name)) this.#add('\n');
    if (name === 'meta') this.#readMeta(attributes);
    const link = name === 'a' || name === 'area' ? attributes.href : undefined;
    if (link !== undefined && this.#links.length < mostLinks) this.#links.push(link.trim());
  }

  ontext(text: string): void {
    if (this.#readsTitle && (this.#title?.length ?? 0) < longestTitle * 4) this.#title += text;
    if (this.#hiddenDepth === 0) this.#add(text.replace(/\s+/g, ' '));
  }

  onclosetag(name: string): void {
    this.#open.pop();
    this.#readsTitle = false;
    if (hidden.has(name)) this.#hiddenDepth -= 1;
    else if (this.#hiddenDepth === 0 && !inline.has(name)) this.#add('\n');
  }

  #add(text: string): void {
    if (this.#text.length < longestText) this.#text += text;
  }

  #readMeta(attributes: Record<string, string>): void {
    const key = (attributes.name ?? attributes.property ?? '').trim().toLowerCase();
    const content = attributes.content ?? '';
    // The first that says something counts.
    if (!this.#meta.has(key) && content.trim() !== '') this.#meta.set(key, content);
  }
}

function first(longest: number, ...texts: (string | undefined)[]): string | undefined {
  return texts.map((text) => normalised(text ?? '', longest)).find((text) => text !== '');
}

/** Control characters and what is left of half a character mean nothing, and PostgreSQL refuses NUL. */
export function normalised(text: string, longest: number): string {
  const clean = text
    .slice(0, longest * 8)
    .replace(/[\s\p{Cc}\p{Cs}\ufeff\u200b]+/gu, ' ')
    .trim();
  return clean
    .slice(0, longest)
    .replace(/\p{Cs}$/u, '')
    .trimEnd();
}

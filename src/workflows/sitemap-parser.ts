/**
 * Parses a sitemap as a stream: XML (`<urlset>`, `<sitemapindex>`) or plain text with one URL per line, within the limits
 * of the sitemap protocol. For any input it ends with the URLs found or throws a SitemapError with the position. Its
 * memory is limited by the 50,000 URLs, not by the file.
 *
 * Strict about structure (every element closed, in order), because a truncated file would otherwise pass for a short
 * one. Lenient about harmless errors of real files: bare `&`, other namespaces, unknown elements, entries that are not
 * URLs (counted and skipped).
 */
import { Parser } from 'htmlparser2';
import { maxUrlLength, readUrl } from './fetch/urls.js';

const maxUrls = 50_000;

export interface Sitemap {
  readonly kind: 'pages' | 'sitemaps';
  /** In the order of the file, each once, each absolute http or https. */
  readonly urls: readonly string[];
  /** Entries that cannot be fetched. */
  readonly invalid: number;
  /** Repeated entries. */
  readonly duplicates: number;
}

export class SitemapError extends Error {
  override readonly name = 'SitemapError';
}

/** A sitemap is three deep, with extensions five. The parser's time grows with the square of the depth. */
const maxDepth = 16;
/** Longer than any URL with every character escaped: truncated, and invalid either way. */
const maxEntryLength = maxUrlLength * 12;

interface Format {
  /** Position of the element being read. */
  readonly startIndex: number;
  write(text: string): void;
  finish(): Sitemap['kind'];
}

export class SitemapParser {
  readonly #entries = new Entries();
  #format: Format | undefined;
  /** Where the text of this `write` begins: in the file, and for the format. */
  #place = { line: 1, column: 1 };
  #written = 0;

  write(text: string): void {
    let rest = text;
    if (this.#format === undefined) {
      rest = text.trimStart();
      this.#place = advance(this.#place, text.slice(0, text.length - rest.length));
      if (rest === '') return;
      this.#format = rest.startsWith('<') ? new XmlSitemap(this.#entries) : new TextSitemap(this.#entries);
    }
    this.#located(rest, (format) => format.write(rest));
    this.#place = advance(this.#place, rest);
    this.#written += rest.length;
  }

  end(): Sitemap {
    return this.#located('', (format) => {
      const kind = format.finish();
      const { urls, invalid, duplicates } = this.#entries;
      return { kind, urls: [...urls], invalid, duplicates };
    });
  }

  #located<T>(text: string, work: (format: Format) => T): T {
    const format = this.#format;
    if (format === undefined) throw new SitemapError('the sitemap is empty');
    try {
      return work(format);
    } catch (error) {
      if (!(error instanceof SitemapError)) throw error;
      const { line, column } = advance(
        this.#place,
        text.slice(0, Math.max(0, format.startIndex - this.#written)),
      );
      throw new SitemapError(`line ${line}, column ${column}: ${error.message}`);
    }
  }
}

function advance({ line, column }: { line: number; column: number }, text: string) {
  const place = { line, column: column + text.length };
  for (let at = text.indexOf('\n'); at !== -1; at = text.indexOf('\n', at + 1)) {
    place.line += 1;
    place.column = text.length - at;
  }
  return place;
}

class Entries {
  readonly urls = new Set<string>();
  invalid = 0;
  duplicates = 0;

  add(text: string): void {
    if (this.urls.size + this.invalid + this.duplicates >= maxUrls) {
      throw new SitemapError(`more than ${maxUrls.toLocaleString('en')} URLs, the maximum of one sitemap`);
    }
    const read = readUrl(text.trim());
    // U+FFFD stands for invalid bytes: the URL is unknown.
    if ('problem' in read || text.includes('\ufffd')) this.invalid += 1;
    else if (this.urls.has(read.url.href)) this.duplicates += 1;
    else this.urls.add(read.url.href);
  }
}

const roots: Readonly<Record<string, { kind: Sitemap['kind']; entry: string }>> = {
  urlset: { kind: 'pages', entry: 'url' },
  sitemapindex: { kind: 'sitemaps', entry: 'sitemap' },
};

/** Reports errors that the parser, made for HTML, tolerates. */
class XmlSitemap extends Parser implements Format {
  readonly #path: string[] = [];
  #root: (typeof roots)[string] | undefined;
  #location: string | undefined;
  /** True while the parser closes a tag like `<url/>`, which it reports as implied. */
  #isSelfClosing = false;
  #hasClosed = false;

  constructor(private readonly entries: Entries) {
    super(
      {
        onopentagname: (name) => this.#open(name),
        ontext: (text) => this.#text(text),
        onclosetag: (name, isImplied) => this.#close(name, isImplied),
      },
      { xmlMode: true },
    );
  }

  finish(): Sitemap['kind'] {
    this.end();
    if (this.#root === undefined) throw new SitemapError('neither <urlset> nor <sitemapindex> found');
    return this.#root.kind;
  }

  override onselfclosingtag(endIndex: number): void {
    this.#isSelfClosing = true;
    super.onselfclosingtag(endIndex);
    this.#isSelfClosing = false;
  }

  override onclosetag(start: number, endIndex: number): void {
    const tagIndex = this.startIndex;
    this.#hasClosed = false;
    super.onclosetag(start, endIndex);
    if (this.#hasClosed) return;
    // The parser is past it already; the message is to show where it was.
    this.startIndex = tagIndex;
    throw new SitemapError('an end tag that closes nothing');
  }

  #open(name: string): void {
    // `sm:urlset` counts as `urlset`. `image:loc` differs from `loc` by its depth.
    const local = name.slice(name.indexOf(':') + 1);
    if (this.#path.length === 0) {
      if (this.#root !== undefined) throw new SitemapError(`<${short(name)}> after the end of the sitemap`);
      this.#root = Object.hasOwn(roots, local) ? roots[local] : undefined;
      if (this.#root === undefined) {
        throw new SitemapError(`expected <urlset> or <sitemapindex>, found <${short(name)}>`);
      }
    }
    this.#path.push(local);
    if (this.#path.length > maxDepth) throw new SitemapError(`elements are nested deeper than ${maxDepth}`);
    if (this.#path.length === 3 && local === 'loc' && this.#path[1] === this.#root?.entry)
      this.#location = '';
  }

  #text(text: string): void {
    if (this.#location !== undefined && this.#location.length <= maxEntryLength) this.#location += text;
  }

  #close(name: string, isImplied: boolean): void {
    this.#hasClosed = true;
    if (isImplied && !this.#isSelfClosing) throw new SitemapError(`<${short(name)}> is not closed`);
    this.#path.pop();
    if (this.#path.length > 2 || this.#location === undefined) return;
    this.entries.add(this.#location);
    this.#location = undefined;
  }
}

class TextSitemap implements Format {
  startIndex = 0;
  #line = '';

  constructor(private readonly entries: Entries) {}

  write(text: string): void {
    const lines = text.split('\n');
    for (const [at, line] of lines.entries()) {
      if (this.#line.length <= maxEntryLength) this.#line += line;
      if (at === lines.length - 1) break;
      this.#take();
      this.startIndex += line.length + 1;
    }
    this.startIndex += lines.at(-1)?.length ?? 0;
  }

  finish(): Sitemap['kind'] {
    this.#take();
    if (this.entries.urls.size === 0) throw new SitemapError('neither XML nor a list of URLs');
    return 'pages';
  }

  #take(): void {
    if (this.#line.trim() !== '') this.entries.add(this.#line);
    this.#line = '';
  }
}

function short(name: string): string {
  return name.length <= 40 ? name : `${name.slice(0, 40)}…`;
}

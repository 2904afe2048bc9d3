/**
 * Made-up sites of small businesses, with sitemaps (plain, compressed, an index) and pages with a title and contacts. A
 * few are slow and a few are broken. The same number gives the same site.
 *
 * One web server on loopback serves them all: the workers resolve every host name to it, so no request reaches the real
 * network.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gzipSync } from 'node:zlib';
import type { DemoContext } from '../context.js';

/** One HTTP response; `never` keeps the connection open without an answer. */
interface Answer {
  status: number;
  type: string;
  body: string | Buffer;
  /** In seconds of the demo. */
  after: number | 'never';
}

interface Site {
  domain: string;
  /** How many pages its sitemaps list. */
  pages: number;
  /** The path of its first sitemap. */
  sitemap: string;
  /** For the log line. */
  about: string;
  answers: ReadonlyMap<string, Answer>;
}

const places = 'linden amber river copper hazel north silver cedar harbour'.split(' ');
const trades = 'bakery dental garage florist yoga bikes roofing books clinic cafe'.split(' ');
const topics = ['about', 'contact', 'team', 'prices', 'hours', 'jobs', 'news', 'gallery', 'reviews', 'faq'];
const people = ['Ada Brook', 'Ben Castle', 'Cleo Dunn', 'Dev Ellis', 'Eva Ford', 'Finn Grant'];

const capital = (word: string) => `${word.charAt(0).toUpperCase()}${word.slice(1)}`;

/** `origin` adds scheme and port to a domain. */
function makeSite(number: number, origin: (domain: string) => string): Site {
  const place = places[number % places.length] as string;
  const trade = trades[number % trades.length] as string;
  const round = Math.floor(number / (places.length * trades.length));
  const domain = `${place}-${trade}${round === 0 ? '' : `-${round + 1}`}.example`;
  const name = `${capital(place)} ${capital(trade)}`;
  const paths = ['/', ...topics.slice(0, 5 + (number % 6)).map((topic) => `/${topic}`)];
  const answers = new Map<string, Answer>(
    paths.map((path, i) => [path, pageAnswer({ path, name, domain, turn: 3 * number + i })]),
  );
  const list = (some: readonly string[]) => urlset(some.map((path) => `${origin(domain)}${path}`));
  const site = (sitemap: string, about: string, files: Record<string, Answer>): Site => {
    for (const [path, answer] of Object.entries(files)) answers.set(path, answer);
    return { domain, pages: paths.length, sitemap, about, answers };
  };
  switch (number % 5) {
    case 1: {
      const half = Math.ceil(paths.length / 2);
      const files = ['/sitemap-1.xml', '/sitemap-2.xml.gz'];
      return site('/sitemap.xml', 'a sitemap index', {
        '/sitemap.xml': xml(sitemapIndex(files.map((path) => `${origin(domain)}${path}`))),
        '/sitemap-1.xml': xml(list(paths.slice(0, half))),
        '/sitemap-2.xml.gz': compressed(list(paths.slice(half))),
      });
    }
    case 2:
      return site('/sitemap.xml.gz', 'a compressed sitemap', { '/sitemap.xml.gz': compressed(list(paths)) });
    case 4:
      // Every other one has no sitemap.
      if (number % 2 === 0)
        return { domain, pages: 0, sitemap: '/sitemap.xml', about: 'a missing sitemap', answers };
      return site('/sitemap.xml', 'a slow sitemap', { '/sitemap.xml': { ...xml(list(paths)), after: 3 } });
    default:
      return site('/sitemap.xml', 'a sitemap', { '/sitemap.xml': xml(list(paths)) });
  }
}

interface Page {
  path: string;
  name: string;
  domain: string;
  turn: number;
}

function pageAnswer(page: Page): Answer {
  const { path, name, turn } = page;
  const after = 1.4 + 0.3 * (turn % 7);
  if (turn % 41 === 40) return { status: 500, type: 'text/html', body: 'Something went wrong.', after };
  if (turn % 53 === 52) return { status: 200, type: 'application/pdf', body: '%PDF-1.7', after };
  if (turn % 97 === 96) return { status: 200, type: 'text/html', body: '', after: 'never' };
  const title = path === '/' ? name : `${capital(path.slice(1))}, ${name}`;
  const body = html(page, title);
  return { status: 200, type: 'text/html; charset=utf-8', body, after: turn % 11 === 10 ? 3.5 : after };
}

function html({ path, name, domain, turn }: Page, title: string): string {
  const person = people[turn % people.length] as string;
  const mailbox = person.split(' ')[0]?.toLowerCase();
  const contacts = [
    `<a href="mailto:${mailbox}@${domain}">${person}</a>`,
    ...(path === '/' || path === '/contact'
      ? [
          // Ofcom reserves these numbers for fiction.
          `<a href="tel:+4420794600${String(turn % 100).padStart(2, '0')}">Call us</a>`,
          `<a href="https://www.facebook.com/${domain.replaceAll(/[^a-z]/g, '')}">Facebook</a>`,
        ]
      : []),
  ];
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>${title}</title>
<meta name="description" content="${name}: ${path === '/' ? 'welcome' : path.slice(1)}."></head>
<body><h1>${title}</h1><p>${contacts.join(' ')}</p></body></html>
`;
}

const xmlHead = '<?xml version="1.0" encoding="UTF-8"?>\n';
const protocol = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"';

function urlset(urls: readonly string[]): string {
  const items = urls.map((url) => `<url><loc>${url}</loc></url>`).join('\n');
  return `${xmlHead}<urlset ${protocol}>\n${items}\n</urlset>\n`;
}

function sitemapIndex(urls: readonly string[]): string {
  const items = urls.map((url) => `<sitemap><loc>${url}</loc></sitemap>`).join('\n');
  return `${xmlHead}<sitemapindex ${protocol}>\n${items}\n</sitemapindex>\n`;
}

const xml = (body: string): Answer => ({ status: 200, type: 'application/xml', body, after: 0.5 });
const compressed = (body: string): Answer => ({
  status: 200,
  type: 'application/gzip',
  body: gzipSync(body),
  after: 0.5,
});

export const webHost = '127.0.0.1';
/** A demo may run for days; older sites are finished. */
const maxSites = 200;

export class Web {
  readonly #server = createServer((request, response) => void this.#answer(request, response));
  readonly #sites = new Map<string, Site>();
  #published = 0;

  constructor(private readonly sleep: DemoContext['sleep']) {}

  async listen(): Promise<void> {
    await once(this.#server.listen(0, webHost), 'listening');
  }

  /** Adds the next site. */
  publish(): Site & { sitemapUrl: string } {
    const { port } = this.#server.address() as AddressInfo;
    const origin = (domain: string) => `http://${domain}:${port}`;
    const site = makeSite(this.#published, origin);
    this.#published += 1;
    this.#sites.set(site.domain, site);
    const [oldest] = this.#sites.keys();
    if (this.#sites.size > maxSites && oldest !== undefined) this.#sites.delete(oldest);
    return { ...site, sitemapUrl: `${origin(site.domain)}${site.sitemap}` };
  }

  async close(): Promise<void> {
    const closed = once(this.#server.close(), 'close');
    this.#server.closeAllConnections();
    await closed;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const domain = request.headers.host?.replace(/:\d+$/, '') ?? '';
    const path = request.url?.replace(/\?.*$/, '') ?? '';
    const answer = this.#sites.get(domain)?.answers.get(path);
    if (!answer) {
      response.writeHead(404, { 'content-type': 'text/plain' }).end('Not found\n');
      return;
    }
    // The client times out.
    if (answer.after === 'never') return;
    await this.sleep(answer.after);
    response.writeHead(answer.status, { 'content-type': answer.type }).end(answer.body);
  }
}

/**
 * The web of the demo: one server on loopback that answers for every site by its name. The workers resolve all names
 * to it, so nothing here ever asks the real network.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { makeSite, type Site } from './sites.js';

interface WebOptions {
  /** In seconds of the demo's time. */
  sleep: (seconds: number) => Promise<void>;
}

export const webHost = '127.0.0.1';
/** Older ones are finished long since; a demo may run for days. */
const mostSites = 200;

export class Web {
  readonly #options: WebOptions;
  readonly #server: Server;
  readonly #sites = new Map<string, Site>();
  #made = 0;

  constructor(options: WebOptions) {
    this.#options = options;
    this.#server = createServer((request, response) => void this.#answer(request, response));
  }

  listen(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(0, webHost, resolve);
    });
  }

  /** Puts the next site on the net. */
  publish(): Site & { sitemapUrl: string } {
    const { port } = this.#server.address() as AddressInfo;
    const origin = (domain: string) => `http://${domain}:${port}`;
    const site = makeSite(this.#made, origin);
    this.#made += 1;
    this.#sites.set(site.domain, site);
    const [oldest] = this.#sites.keys();
    if (this.#sites.size > mostSites && oldest !== undefined) this.#sites.delete(oldest);
    return { ...site, sitemapUrl: `${origin(site.domain)}${site.sitemap}` };
  }

  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const domain = request.headers.host?.replace(/:\d+$/, '') ?? '';
    const path = request.url?.replace(/\?.*$/, '') ?? '';
    const answer = this.#sites.get(domain)?.answers.get(path);
    if (!answer) {
      response.writeHead(404, { 'content-type': 'text/plain' }).end('Not found\n');
      return;
    }
    // Whoever asked gives up first.
    if (answer.after === 'never') return;
    await this.#options.sleep(answer.after);
    response.writeHead(answer.status, { 'content-type': answer.type }).end(answer.body);
  }
}

/**
 * The web server of the demo, on loopback, for all sites: the workers resolve every host name to it, so no request
 * reaches the real network.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { DemoContext } from '../context.js';
import { makeSite, type Site } from './sites.js';

export const webHost = '127.0.0.1';
/** A demo may run for days; older sites are finished. */
const maxSites = 200;

export class Web {
  readonly #sleep: DemoContext['sleep'];
  readonly #server: Server;
  readonly #sites = new Map<string, Site>();
  #published = 0;

  constructor(sleep: DemoContext['sleep']) {
    this.#sleep = sleep;
    this.#server = createServer((request, response) => void this.#answer(request, response));
  }

  listen(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(0, webHost, resolve);
    });
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
    // The client times out.
    if (answer.after === 'never') return;
    await this.#sleep(answer.after);
    response.writeHead(answer.status, { 'content-type': answer.type }).end(answer.body);
  }
}

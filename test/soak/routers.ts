/** Two routers as an operator starts them, and HTTP to them. */
import { writeFileSync } from 'node:fs';
import { Agent, type IncomingMessage, request } from 'node:http';
import { join } from 'node:path';
import { Child, root } from '../chaos/child.js';
import type { Cluster } from '../support/cluster.js';

const adminKey = 'the-admin-key-of-the-soak';
const apiKey = 'the-api-key-of-the-soak';
/** What voice agents send; an admin's requests are logged one by one. */
const isOfAgent = /\/(allocate|release|renew|report|drain|undrain)$/;
export const twilioToken = 'the-token-of-the-soak';

/** Leases and records end within minutes, so that a run reaches its constant state during the warm-up. */
const env = {
  SMART_ROUTER_ADMIN_KEY: adminKey,
  SMART_ROUTER_API_KEY: apiKey,
  TWILIO_AUTH_TOKEN: twilioToken,
  METRICS_PORT: 'off',
  LOG_FORMAT: 'json',
  LOG_LEVEL: 'warn',
  POD_SOURCE: 'kubernetes',
  LEASE_TTL: '1m',
  CALL_INFO_TTL: '2m',
  REPORT_GRACE: '10s',
  DRAINING_TTL: '30s',
  AUDIT_INTERVAL: '1m',
};

export interface Answer {
  /** 0: no answer. */
  status: number;
  body: { pod_name?: string; fence?: number };
  text: string;
}

export class Router {
  readonly url: string;
  readonly child: Child;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 200 });

  constructor(
    readonly name: string,
    readonly port: number,
    { cluster, folder, more }: { cluster: Cluster; folder: string; more: Record<string, string> },
  ) {
    this.url = `http://127.0.0.1:${port}`;
    const kubeconfig = join(folder, `${name}.kubeconfig`);
    writeFileSync(kubeconfig, cluster.kubeconfigFor(name));
    this.child = new Child({
      command: [process.execPath, join(root, 'bin', 'smart-router.js'), 'serve'],
      env: { ...env, HTTP_PORT: String(port), POD_NAME: name, KUBECONFIG: kubeconfig, ...more },
      logFile: join(folder, `${name}.log`),
    });
  }

  send(method: string, path: string, body?: unknown): Promise<Answer> {
    const type = body === undefined ? {} : { 'content-type': 'application/json' };
    return this.#request(method, path, type, body === undefined ? '' : JSON.stringify(body));
  }

  form(path: string, fields: Record<string, string>, signature: string): Promise<Answer> {
    const headers = { 'content-type': 'application/x-www-form-urlencoded', 'x-twilio-signature': signature };
    return this.#request('POST', path, headers, String(new URLSearchParams(fields)));
  }

  /** Reads an event stream for some time. */
  follow(path: string, forMs: number): Promise<void> {
    return new Promise((resolve) => {
      const outgoing = request(this.url + path, { headers: { authorization: `Bearer ${adminKey}` } });
      outgoing.on('response', (incoming: IncomingMessage) => incoming.on('error', () => {}).resume());
      outgoing.on('error', () => {});
      outgoing.on('close', () => resolve());
      setTimeout(() => outgoing.destroy(), forMs);
      outgoing.end();
    });
  }

  async stop(): Promise<void> {
    this.#agent.destroy();
    await this.child.end('SIGTERM');
  }

  #request(method: string, path: string, more: Record<string, string>, body: string): Promise<Answer> {
    return new Promise((resolve) => {
      const failed = (error: Error) => resolve({ status: 0, body: {}, text: error.message });
      const headers = { authorization: `Bearer ${isOfAgent.test(path) ? apiKey : adminKey}`, ...more };
      const outgoing = request(this.url + path, { method, agent: this.#agent, headers, timeout: 30_000 });
      outgoing.on('response', (incoming: IncomingMessage) => {
        let text = '';
        incoming.setEncoding('utf8');
        incoming.on('data', (chunk: string) => {
          text += chunk;
        });
        incoming.on('error', failed);
        incoming.on('end', () => resolve({ status: incoming.statusCode ?? 0, body: parsed(text), text }));
      });
      outgoing.on('timeout', () => outgoing.destroy(new Error('timed out after 30 s')));
      outgoing.on('error', failed);
      outgoing.end(body);
    });
  }
}

function parsed(text: string): Answer['body'] {
  try {
    return JSON.parse(text) as Answer['body'];
  } catch {
    return {};
  }
}

/** Two routers as an operator starts them, and requests to either of them, which the history keeps. */
import { Agent, request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { Child, root } from '../chaos/child.js';
import type { HistoryWriter } from '../history/writer.js';
import { freePorts } from '../support/ports.js';
import { until } from '../support/until.js';
import { apiKey } from './settings.js';

export interface Answer {
  /** 0: no reply. */
  status: number;
  body: { code?: string; pod_name?: string; fence?: number };
}

/** Beyond `REQUEST_TIMEOUT`. */
const timeoutMs = 4000;

export class Routers {
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 500 });
  readonly #children: Child[];
  /** Routers that ended by themselves. */
  readonly ended: string[] = [];

  private constructor(
    readonly urls: readonly string[],
    private readonly history: HistoryWriter,
    folder: string,
    env: Readonly<Record<string, string>>,
  ) {
    this.#children = urls.map(
      (url, i) =>
        new Child({
          command: [process.execPath, join(root, 'bin', 'smart-router.js'), 'serve'],
          env: { ...env, HTTP_PORT: new URL(url).port, POD_NAME: `router-${i}` },
          logFile: join(folder, `router-${i}.log`),
          onEnd: (why) => this.ended.push(`router-${i} ${why}`),
        }),
    );
  }

  static async open(
    folder: string,
    env: Readonly<Record<string, string>>,
    history: HistoryWriter,
  ): Promise<Routers> {
    const ports = await freePorts(2);
    const urls = ports.map((port) => `http://127.0.0.1:${port}`);
    return new Routers(urls, history, folder, env);
  }

  async untilReady(): Promise<void> {
    await until(
      async () => {
        if (this.ended.length > 0) return true;
        const answers = await Promise.all(this.urls.map((url) => this.#send('GET', `${url}/api/v1/ready`)));
        return answers.every(({ status }) => status === 200);
      },
      'both routers are ready',
      60_000,
    );
    if (this.ended.length > 0) throw new Error(this.ended.join('; '));
  }

  post(url: string, path: string, body: unknown, waitMs = 0): Promise<Answer> {
    return this.history.send(path, body, () => this.#send('POST', url + path, body, timeoutMs + waitMs));
  }

  async stop(): Promise<void> {
    await Promise.all(this.#children.map((child) => child.end()));
    this.#agent.destroy();
  }

  #send(method: string, url: string, body?: unknown, withinMs = timeoutMs): Promise<Answer> {
    return new Promise((resolve) => {
      const over = (answer: Answer) => {
        clearTimeout(timer);
        resolve(answer);
      };
      const lost = () => over({ status: 0, body: {} });
      const outgoing = httpRequest(
        url,
        {
          ...{ method, agent: this.#agent },
          headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
        },
        (incoming) => {
          let text = '';
          incoming.setEncoding('utf8');
          incoming.on('data', (chunk: string) => {
            text += chunk;
          });
          incoming.on('error', lost);
          incoming.on('end', () => over({ status: incoming.statusCode ?? 0, body: JSON.parse(text) }));
        },
      );
      const timer = setTimeout(() => outgoing.destroy(), withinMs);
      outgoing.on('error', lost);
      outgoing.end(body === undefined ? undefined : JSON.stringify(body));
    });
  }
}

/** A listener of server-sent events over a real connection. */
import { get, type IncomingMessage } from 'node:http';

export interface Heard {
  id: string;
  type: string;
  // biome-ignore lint/suspicious/noExplicitAny: the fields depend on the type.
  data: any;
}

export interface Listener {
  status: number;
  headers: IncomingMessage['headers'];
  events: Heard[];
  /** Lines that carry no event: heartbeats. */
  comments: string[];
  text(): string;
  closed: Promise<void>;
  close(): void;
}

export function listen(url: string, headers: Record<string, string> = {}): Promise<Listener> {
  return new Promise((resolve, reject) => {
    const request = get(url, { headers, agent: false });
    request.once('error', reject);
    request.once('response', (response) => {
      const events: Heard[] = [];
      const comments: string[] = [];
      let all = '';
      let rest = '';
      response.on('data', (chunk: Buffer) => {
        all += chunk.toString();
        const blocks = (rest + chunk.toString()).split('\n\n');
        rest = blocks.pop() ?? '';
        for (const block of blocks) {
          if (block.startsWith(':')) comments.push(block);
          if (block.startsWith('id: ')) events.push(toEvent(block));
        }
      });
      const closed = new Promise<void>((done) => response.once('close', () => done()));
      response.on('error', () => undefined);
      resolve({
        status: response.statusCode ?? 0,
        headers: response.headers,
        events,
        comments,
        text: () => all,
        closed,
        close: () => request.destroy(),
      });
    });
  });
}

function toEvent(block: string): Heard {
  const fields = Object.fromEntries(block.split('\n').map((line) => line.split(/: (.*)/s).slice(0, 2)));
  return { id: fields.id, type: fields.event, data: JSON.parse(fields.data) };
}

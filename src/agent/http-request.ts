/**
 * HTTP requests of the sidecar and of the commands over node:http: `fetch` takes 10 MB of memory more. Without an `agent`
 * each request has a connection of its own: no stale one after a router was replaced, and its name is looked up again.
 */
import { type Agent, request as httpRequest, type IncomingMessage } from 'node:http';

export interface HttpRequest {
  method: string;
  headers?: Record<string, string>;
  body?: string | undefined;
  signal: AbortSignal;
  agent?: Agent | false;
}

/** Resolves with the status and headers; the body has not been read. Rejects also when `signal` aborts. */
export async function sendRequest(url: string, { body, ...options }: HttpRequest): Promise<IncomingMessage> {
  // Loaded when it is needed: TLS takes 4 MB.
  const { request } = url.startsWith('https:') ? await import('node:https') : { request: httpRequest };
  return new Promise((resolve, reject) => {
    const sent = request(url, { agent: false, ...options });
    // Later errors reach the reader of the response.
    sent.on('error', reject);
    sent.once('response', resolve);
    // A 101 closes the request with neither an error nor a response.
    sent.once('close', () => reject(new Error('connection closed without a response')));
    sent.end(body);
  });
}

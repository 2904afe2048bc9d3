import { readFileSync } from 'node:fs';
import type { AgentConfig } from '../config/agent.js';
import { type HttpRequest, sendRequest } from './http-request.js';

/**
 * The part of `fetch` that the client uses. It reads the key file for every request: the key may change while calls go on.
 */
export function routerFetch({ apiKeyFile }: Pick<AgentConfig, 'apiKeyFile'>): typeof globalThis.fetch {
  const fetch = async (url: string, init: HttpRequest) => {
    const headers = { ...init.headers };
    if (apiKeyFile !== undefined) headers.authorization = `Bearer ${readFileSync(apiKeyFile, 'utf8').trim()}`;
    const { method, body, signal } = init;
    const response = await sendRequest(url, { method, headers, body, signal });
    const get = (name: string) => {
      const value = response.headers[name];
      return typeof value === 'string' ? value : null;
    };
    return { status: response.statusCode, headers: { get }, body: response };
  };
  return fetch as unknown as typeof globalThis.fetch;
}

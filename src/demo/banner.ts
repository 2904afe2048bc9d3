/**
 * The texts that the demo prints without a picture: an introduction while everything starts and, only when the routers
 * answer, the address and the commands.
 */
import { type Paint, wrap } from '../terminal/text.js';
import { version } from '../version.js';
import type { Command } from './commands.js';
import { legend } from './frame.js';

export interface Usage {
  url: string;
  takenPort: number | undefined;
  /** The variable that holds the API key, if one is needed. */
  keyVariable: string | undefined;
  commands: readonly Command[];
}

export const movedText = (takenPort: number, url: string) =>
  `Port ${takenPort} is in use, so the demo listens at ${url}/`;

export function introduction(paint: Paint): string[] {
  return [
    '',
    `  ${paint('bold', `Smart Router ${version}`)}  every live call gets a voice agent; abandoned work is recovered`,
    '',
    '  Here    a simulated Kubernetes cluster with 20 voice agents, their callers, and',
    '          3 router processes. A call tries gold, then standard, then basic (shared:',
    '          3 calls each). Merchants acme and nova have their own agents; acme falls',
    '          back to standard, nova has no fallback. The demo also runs PostgreSQL:',
    '          2 workers and the routers import the sitemaps of made-up sites and read',
    '          their pages.',
    `  Agents  ${legend(paint)}`,
    '',
    '  Starting, a few seconds.',
    '',
  ];
}

export function usage({ url, takenPort, keyVariable, commands }: Usage, paint: Paint): string[] {
  const api = `${url}/api/v1`;
  const key = keyVariable === undefined ? '' : ` -H "Authorization: Bearer $${keyVariable}"`;
  const curl = (path: string, body?: string) =>
    `curl -s${key} ${api}${path}${body ? ` -H 'content-type: application/json' -d '${body}'` : ''}`;
  return [
    '',
    `  Open    ${paint('cyan', `${url}/`)}`,
    ...(takenPort === undefined ? [] : [`          ${movedText(takenPort, url)}`]),
    '  Do      type a command and Enter; Ctrl-C stops the demo:',
    ...wrap(
      commands.map(({ word }, i) => (i === commands.length - 1 ? word : `${word},`)),
      68,
    ).map((line) => `          ${line}`),
    '  Try     in another terminal:',
    '',
    `    ${curl('/status')}`,
    `    ${curl('/allocate', '{"call_sid":"my-call"}')}`,
    `    ${curl('/calls/my-call')}`,
    `    ${curl('/release', '{"call_sid":"my-call"}')}`,
    `    ${curl('/drain', '{"pod_name":"standard-3","wait":"10s"}')}`,
    // Works in a clone and with an installed package; elsewhere npx would ask the registry.
    `    npx smart-router top --url ${url}`,
    '',
  ];
}

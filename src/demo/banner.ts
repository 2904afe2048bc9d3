/**
 * What is printed where there is no stage. First what this is, while everything starts; only when it answers, what can
 * be done with it: an address that somebody tries too early is a bad beginning.
 */
import { type Paint, wrap } from '../terminal/text.js';
import { version } from '../version.js';
import type { Command } from './commands.js';
import { legend } from './frame.js';

export interface Invitation {
  url: string;
  takenPort: number | undefined;
  /** Which variable holds the key, if one is needed. */
  keyVariable: string | undefined;
  commands: readonly Command[];
}

export const movedText = (takenPort: number, url: string) =>
  `Port ${takenPort} is in use, so the demo listens at ${url}/`;

export function introduction(paint: Paint): string[] {
  return [
    '',
    `  ${paint('bold', `Smart Router ${version}`)}  every live call gets a voice agent; whatever loses its owner comes back`,
    '',
    '  Here    a simulated Kubernetes cluster with 20 voice agents, their callers, and',
    '          3 routers that are processes of their own. A call tries gold, then',
    '          standard, then basic (shared: 3 calls each). Merchants acme and nova have',
    '          agents of their own; acme falls back to standard, nova to nobody. Beside',
    '          it, on a PostgreSQL of its own: 2 workers, and the routers, import the',
    '          sitemaps of made-up sites and read their pages.',
    `  Agents  ${legend(paint)}`,
    '',
    '  It starts: a few seconds.',
    '',
  ];
}

export function invitation({ url, takenPort, keyVariable, commands }: Invitation, paint: Paint): string[] {
  const api = `${url}/api/v1`;
  const key = keyVariable === undefined ? '' : ` -H "Authorization: Bearer $${keyVariable}"`;
  const curl = (path: string, body?: string) =>
    `curl -s${key} ${api}${path}${body ? ` -H 'content-type: application/json' -d '${body}'` : ''}`;
  return [
    '',
    `  Open    ${paint('cyan', `${url}/`)}`,
    ...(takenPort === undefined ? [] : [`          ${movedText(takenPort, url)}`]),
    '  Do      a word and Enter; Ctrl-C stops it:',
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
    // From a clone and from an installed package; elsewhere npx would ask the registry for it.
    `    npx smart-router top --url ${url}`,
    '',
  ];
}

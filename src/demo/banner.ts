/**
 * What is printed where there is no stage. First what this is, while everything starts; only when it answers, what can
 * be done with it: an address that somebody tries too early is a bad beginning.
 */
import { version } from '../version.js';
import { legend } from './cells.js';
import type { Command } from './commands.js';
import type { Paint } from './lines.js';

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
    ...wrapped(
      commands.map(({ word }) => word),
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

/** Words with commas between them, in lines of at most `width`. */
function wrapped(words: readonly string[], width: number): string[] {
  const lines: string[] = [];
  for (const [i, word] of words.entries()) {
    const item = i === words.length - 1 ? word : `${word},`;
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + item.length <= width) lines[lines.length - 1] += ` ${item}`;
    else lines.push(item);
  }
  return lines;
}

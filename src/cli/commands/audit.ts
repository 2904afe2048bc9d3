/** `smart-router audit`: checks the invariants of calls and pods in the store. */
import { type Cell, facts } from '../../terminal/table.js';
import { type Colour, clean, paint } from '../../terminal/text.js';
import { routerCommand } from '../access.js';
import { Failure } from '../failure.js';
import { count } from '../format.js';
import type { Audit } from '../replies.js';

/** The router's own limit is shorter. */
const maxAuditMs = 60_000;

export const audit = routerCommand({
  name: 'audit',
  summary: 'check the invariants of calls and pods in the store',
  about:
    'The router checks every pod, call and pool while it serves calls, and changes nothing. A violation must never happen. A pending finding is repaired by the sweep or expires, and needs no action. Each line says what to do or what repairs it.',
  examples: [
    ['audit', ''],
    ['audit --json | jq .violation_count', 'for a script'],
    ['audit && echo clean', 'use the exit code'],
  ],
  exits: [8],
  async run({ api }) {
    const timeoutMs = api.timeoutMs + maxAuditMs;
    const { body } = await api.send<Audit>('/audit', 'violations', { timeoutMs });
    return { document: body, text: show(body), failure: failureOf(body) };
  },
});

function failureOf({ violation_count: found, complete }: Audit): Failure | undefined {
  if (found > 0) return new Failure('violations_found', `${count(found, 'violation')} found`);
  if (complete) return undefined;
  return new Failure('failed', 'the audit timed out; it found nothing in the part that it checked');
}

function show(body: Audit): string {
  const { looked_at, took_ms, violation_count, pending_count } = body;
  const verdict = (number: number, colour: Colour): Cell =>
    number === 0 ? { text: 'none', colour: 'green' } : { text: String(number), colour };
  return [
    facts([
      ['pools', looked_at.pools],
      ['pods', looked_at.pods],
      ['calls', looked_at.calls],
      ['keys', looked_at.keys],
      ['took', `${took_ms} ms`],
      ['violations', verdict(violation_count, 'red')],
      ['pending', verdict(pending_count, 'yellow')],
    ]),
    ...section('VIOLATIONS', body.violations, violation_count),
    ...section('PENDING', body.pending, pending_count),
  ].join('');
}

/** One sentence per line: a table would cut them. */
function section(head: string, found: Audit['violations'], total: number): string[] {
  if (found.length === 0) return [];
  const left = total - found.length;
  return [
    `\n${paint('bold', head)}\n`,
    ...found.map(({ message }) => `${clean(message)}\n`),
    ...(left > 0 ? [`${left} more\n`] : []),
  ];
}

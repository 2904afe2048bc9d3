/** `smart-router records advise`: which times a workflow should have, by what was seen of it, and why. */
import type { Command } from 'commander';
import { formatDuration } from '../../config/durations.js';
import { adviseTimes, suggestTimes } from '../../records/by-hand-advice.js';
import { type Cell, facts } from '../../terminal/table.js';
import { type Cli, withAccess, withRouter } from '../cli.js';
import { Failure } from '../failure.js';
import { answerRecords, describeRecords } from '../records.js';

/** As long as a person waits for a router that may not be there. */
const patienceMs = 2000;

export function recordsAdvise(parent: Command, cli: Cli): void {
  const described = describeRecords(parent.command('advise').argument('<workflow>', 'name of the workflow'), {
    summary: 'say which `timeout` and `stuck.after` a workflow should have, and why',
    about:
      'A running router knows how long 99 of 100 records take; it is asked first, within two seconds. Where none answers, the resets of the last week and what is being worked on now are all that is known. Nothing is changed: the times stand in the definition of the workflow.',
    examples: [
      ['records advise page-curation', ''],
      ['records advise page-curation --url http://router:8080', 'ask this router'],
    ],
    exits: [4],
  });
  const command = withAccess(described);
  answerRecords(command, cli, async ({ desk, config }) => {
    const name = command.args[0] ?? '';
    const workflow = desk.workflow(name);
    const stuckAfterMs = config.zombieStuckThresholdMs;
    const history = await desk.history(name);
    const { p99Seconds, source } = await observed(command, cli, name);
    const now = {
      timeoutMs: workflow.timeoutMs,
      stuckAfterMs: workflow.stuck.afterMs ?? Math.max(stuckAfterMs, workflow.timeoutMs),
    };
    const would = suggestTimes(now, history, p99Seconds);
    const advice = adviseTimes(workflow, history, stuckAfterMs, p99Seconds);
    const change = (fromMs: number, toMs: number, why: string): Cell =>
      fromMs === toMs
        ? { text: `${formatDuration(fromMs)}, keep it: ${why}`, colour: undefined }
        : { text: `${formatDuration(toMs)} instead of ${formatDuration(fromMs)}: ${why}`, colour: 'yellow' };
    const text = facts(
      [
        ['workflow', name],
        ['seen by', source],
        ['p99', p99Seconds === null ? '-' : `${p99Seconds} s`],
        ['timeout', change(now.timeoutMs, would.timeoutMs, would.whyTimeout)],
        ['stuck.after', change(now.stuckAfterMs, would.stuckAfterMs, would.whyStuckAfter)],
        ...advice.map((line): [string, Cell] => ['advice', { text: line, colour: 'yellow' }]),
      ],
      cli.screen.paint,
    );
    const document = {
      name,
      source,
      processing_p99_seconds: p99Seconds,
      timeout_ms: now.timeoutMs,
      stuck_after_ms: now.stuckAfterMs,
      suggested_timeout_ms: would.timeoutMs,
      suggested_stuck_after_ms: would.stuckAfterMs,
      why_timeout: would.whyTimeout,
      why_stuck_after: would.whyStuckAfter,
      advice,
    };
    return { document, text };
  });
}

/** What a router has seen; a router that is not there, or has other workflows, is none. */
async function observed(
  command: Command,
  cli: Cli,
  name: string,
): Promise<{ p99Seconds: number | null; source: string }> {
  const alone = 'the database only';
  try {
    return await withRouter(command, cli, async (api) => {
      const { body } = await api.send<Answer>('/records', {
        has: 'workflows',
        timeoutMs: Math.min(api.timeoutMs, patienceMs),
      });
      const found = body.workflows.find((workflow) => workflow.name === name);
      if (!found)
        return { p99Seconds: null, source: `${alone}: the router at ${api.baseUrl} does not run it` };
      const p99Seconds = found.processing_p99_seconds;
      return p99Seconds === null
        ? { p99Seconds, source: `${alone}: the router at ${api.baseUrl} has seen fewer than 100 records` }
        : { p99Seconds, source: `the router at ${api.baseUrl}, and the database` };
    });
  } catch (error) {
    // A wrong --url is the person's mistake; a router that is away is not.
    if (!(error instanceof Failure) || error.exitCode === 2) throw error;
    return { p99Seconds: null, source: `${alone}: ${error.message}` };
  }
}

interface Answer {
  workflows: { name: string; processing_p99_seconds: number | null }[];
}

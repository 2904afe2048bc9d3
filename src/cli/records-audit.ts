/**
 * Who did what, for what is done to records without a router. With --json: one line on stderr, of the shape that the
 * lines of a router have (http/action-log.ts), so that one collector reads both. A router knows its caller by key and
 * address; here it is the user of this machine. Without --json a person reads the terminal, and gets no JSON.
 */
import { hostname, userInfo } from 'node:os';
import type { Command } from 'commander';
import { ConfigError, type ErrorCode, errorCodes } from '../errors.js';
import type { HandledCounts } from '../records/by-hand.js';
import type { Cli } from './cli.js';

export interface RecordsAction {
  action: 'records.reset' | 'records.retry';
  workflow: string;
  /** Without --apply nothing is changed, and nothing is told. */
  isApplied: boolean;
}

/** Runs `work` and writes the line about its outcome. */
export async function audited(
  { screen }: Cli,
  command: Command,
  { action, workflow, isApplied }: RecordsAction,
  work: () => Promise<HandledCounts>,
): Promise<HandledCounts> {
  if (!isApplied || !command.opts<{ json?: true }>().json) return work();
  // Here, because a log takes longer to load than most commands take.
  const { createLogger } = await import('../observe/log.js');
  const destination = { write: (line: string) => screen.err(line.trimEnd()) };
  const log = createLogger({ level: 'info', format: 'json', destination });
  const tell = (outcome: string, more: object) =>
    log.info(
      { audit: true, action, what: workflow, outcome, ...more, actor: `${user()}@${hostname()}` },
      `audit: ${action} ${outcome}`,
    );
  try {
    const counts = await work();
    const { requeued, failed, held, skipped } = counts;
    tell('done', { requeued, failed, held, skipped });
    return counts;
  } catch (error) {
    const { toldError } = await import('../records/by-hand.js');
    const told = toldError(error) as { code?: ErrorCode };
    const status = told instanceof ConfigError ? 400 : (errorCodes[told.code ?? 'internal'] ?? 500);
    const code = told instanceof ConfigError ? 'configuration' : (told.code ?? 'internal');
    tell(status >= 500 ? 'failed' : 'refused', { code });
    throw error;
  }
}

/** A container may run as a number that has no name. */
function user(): string {
  try {
    return userInfo().username;
  } catch {
    return `uid:${process.getuid?.() ?? 'unknown'}`;
  }
}

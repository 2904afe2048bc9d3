/**
 * Delivers the report of the last full week (Monday to Monday, UTC) once, from one replica: a row in our schema records
 * which replica has taken it. After a failed delivery any replica may take it 15 minutes later, so a report may come
 * twice. Weeks in which no replica ran are not delivered later; `weeklyReport` shows them.
 *
 * Also counts late finishes, which only the process itself sees.
 */
import { mkdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Pool } from 'pg';
import type { Clock } from '../clock.js';
import { type LoopState, SupervisedLoop } from '../loop.js';
import type { Logger } from '../observe/log.js';
import { parseAddress, post } from '../observe/webhook.js';
import type { RecordObserver } from './observer.js';
import { queries } from './queries.generated.js';
import { type WeeklyReport, weeklyReport } from './report.js';
import { reportMarkdown } from './report-markdown.js';
import { Sessions } from './sessions.js';

export interface ReporterOptions {
  pool: Pool;
  clock: Clock;
  log: Logger;
  /** The name of this replica. */
  source: string;
  /** In addition to the log. */
  to?: {
    /** `stuck-records-<last day>.md` and `.json` are written here. */
    folder?: string | undefined;
    webhook?: { url: string; secret?: string | undefined } | undefined;
  };
  /** How often it checks whether a week is over. Default: 5 min. */
  intervalMs?: number;
  onCrash?: ((loop: string) => void) | undefined;
}

export interface ReporterCounts extends Record<string, number> {
  reports: number;
  late_finishes: number;
}

export class Reporter {
  readonly #options: ReporterOptions;
  readonly #webhook: URL | undefined;
  readonly #loop: SupervisedLoop;
  readonly #sessions: Sessions;
  #late = new Map<string, number>();

  constructor(options: ReporterOptions) {
    const { intervalMs = 300_000, to } = options;
    this.#options = options;
    this.#sessions = new Sessions(options);
    this.#webhook = to?.webhook && parseAddress(to.webhook.url, 'the address of the report webhook');
    this.#loop = new SupervisedLoop({
      ...options,
      name: 'records-report',
      intervalMs,
      runOnce: () => this.runOnce(),
    });
  }

  /** For the record loop: a workflow that runs here is counted, with zero if nothing was late. */
  readonly observer: RecordObserver = {
    claimed: (workflow) => this.#count(workflow, 0),
    rejected: (workflow, records) => this.#count(workflow, records),
  };

  get loops(): LoopState[] {
    return [this.#loop.state];
  }

  start(): void {
    this.#loop.start();
  }

  async stop(): Promise<void> {
    await this.#loop.stop();
    await this.#writeLate().catch((error: unknown) =>
      this.#options.log.warn({ err: error }, 'late finishes not counted'),
    );
  }

  /** `now` instead of the database's clock. */
  async runOnce({ now }: { now?: Date } = {}): Promise<ReporterCounts> {
    const { source, pool } = this.#options;
    const late_finishes = await this.#writeLate();
    const { rows } = await this.#sessions.query<{ since: Date; until: Date }>(queries.reportTake, [
      source,
      now ?? null,
    ]);
    const [week] = rows;
    if (!week) return { reports: 0, late_finishes };
    const report = await weeklyReport(pool, week);
    await this.#deliver(report);
    await this.#sessions.query(queries.reportDone, [week.until, JSON.stringify(report)]);
    return { reports: 1, late_finishes };
  }

  #count(workflow: string, records: number): void {
    this.#late.set(workflow, (this.#late.get(workflow) ?? 0) + records);
  }

  async #writeLate(): Promise<number> {
    const late = this.#late;
    if (late.size === 0) return 0;
    this.#late = new Map();
    const records = [...late.values()];
    try {
      await this.#sessions.query(queries.reportCountLate, [[...late.keys()], records]);
    } catch (error) {
      // Kept for the next round; after a lost reply they may be counted twice.
      for (const [workflow, count] of late) this.#count(workflow, count);
      throw error;
    }
    return records.reduce((sum, count) => sum + count, 0);
  }

  async #deliver(report: WeeklyReport): Promise<void> {
    const { log, to, clock } = this.#options;
    const markdown = reportMarkdown(report);
    const { since, until, records, before, byHand } = report;
    // Before the deliveries, which may fail.
    log.info({ since, until, records, before, by_hand: byHand, markdown }, 'weekly report of stuck records');
    if (to?.folder !== undefined) await writeFiles(to.folder, report, markdown);
    if (this.#webhook) {
      const body = { event: 'weekly_report', text: markdown, report };
      await post({ url: this.#webhook, body, secret: to?.webhook?.secret, clock });
    }
  }
}

/** Renames complete files, so that a reader of the folder never sees half a file. */
async function writeFiles(folder: string, report: WeeklyReport, markdown: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const name = join(folder, `stuck-records-${report.until.slice(0, 10)}`);
  const files = { md: markdown, json: `${JSON.stringify(report, null, 2)}\n` };
  for (const [ending, text] of Object.entries(files)) {
    await writeFile(`${name}.${ending}.part`, text);
    await rename(`${name}.${ending}.part`, `${name}.${ending}`);
  }
}

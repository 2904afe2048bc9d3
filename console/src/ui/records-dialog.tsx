/** Reset and retry of records: always a dry run first, then a confirmation. */
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { ask, sentenceOf } from '../api';
import { capital, count, plural, spaced } from '../labels';
import { durationText } from '../time';
import type { FailedRecords, Handled, HandledRecord } from '../types';
import { Dialog } from './dialogs';
import { notify } from './messages';
import { Note, PlainTable } from './parts';

type Failed = FailedRecords['records'][number];

export interface RecordsAction {
  what: 'reset' | 'retry';
  workflow: string;
  /** Undefined: all stuck records; for a retry the dialog asks. */
  ids?: readonly string[];
}

const maxIds = 1000;
const maxShown = 100;

interface HandleDialogProps {
  handling: RecordsAction;
  /** Records may have changed. */
  onHandled: () => void;
  onClose: () => void;
}

export function RecordsDialog({ handling, onHandled, onClose }: HandleDialogProps) {
  const { what, workflow } = handling;
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [failed, setFailed] = useState<Failed[]>();
  const [dryRun, setDryRun] = useState<Handled>();
  const [problem, setProblem] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  const asksForIds = what === 'retry' && handling.ids === undefined;
  const ids = asksForIds ? [...chosen] : handling.ids;

  const send = async (dry_run: boolean) => {
    setBusy(true);
    setProblem(undefined);
    try {
      const path = `/records/${encodeURIComponent(workflow)}/${what}`;
      const result = await ask<Handled>(path, { method: 'POST', body: { dry_run, ...(ids ? { ids } : {}) } });
      if (dry_run) setDryRun(result);
      else {
        notify(`${workflow}: ${summaryOf(result)}.`);
        onClose();
      }
    } catch (error) {
      setProblem(sentenceOf(error));
    }
    // Also after an error: the request may have been executed.
    if (!dry_run) onHandled();
    setBusy(false);
  };
  const readFailed = () =>
    ask<FailedRecords>(`/records/${encodeURIComponent(workflow)}/failed?limit=${maxIds}`).then(
      ({ records }) => setFailed(records),
      (error: unknown) => setProblem(sentenceOf(error)),
    );
  // Once, when it opens.
  useEffect(() => {
    if (asksForIds) void readFailed();
    else void send(true);
  }, []);

  const changes = dryRun === undefined ? 0 : dryRun.requeued + dryRun.failed;
  const title =
    what === 'reset' ? `Reset stuck records of ${workflow}` : `Retry failed records of ${workflow}`;
  return (
    <Dialog title={title} wide onClose={onClose}>
      <div class="stack">
        {asksForIds && failed === undefined && !problem && <p role="status">Reading failed records…</p>}
        {asksForIds && failed && !dryRun && (
          <FailedTable failed={failed} chosen={chosen} onChoose={setChosen} />
        )}
        {problem && <Note tone="bad">{problem}</Note>}
        {dryRun && (
          <>
            <Note tone={changes > 0 ? 'good' : 'warn'}>
              <b>Dry run, nothing has changed.</b> If you continue: {summaryOf(dryRun)}.
            </Note>
            <DryRunTable result={dryRun} />
          </>
        )}
        {!dryRun && isBusy && <p role="status">Dry run in progress…</p>}
        <div class="row end">
          <button type="button" class="btn" onClick={onClose}>
            Cancel
          </button>
          <button
            type="button"
            class="btn primary"
            disabled={isBusy || (dryRun ? changes === 0 : ids?.length === 0)}
            onClick={() => send(dryRun === undefined)}
          >
            {dryRun ? `${capital(what)} ${plural(changes, 'record')}` : 'Dry run'}
          </button>
        </div>
      </div>
    </Dialog>
  );
}

interface FailedTableProps {
  failed: readonly Failed[];
  chosen: ReadonlySet<string>;
  onChoose: (ids: ReadonlySet<string>) => void;
}

function FailedTable({ failed, chosen, onChoose }: FailedTableProps) {
  if (failed.length === 0) return <Note tone="good">No record of this workflow has failed.</Note>;
  const areAll = chosen.size === failed.length;
  const waits = failed.some(({ retry_seconds }) => retry_seconds !== null);
  const toggle = (id: string) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    onChoose(next);
  };
  return (
    <>
      <label class="row">
        <input
          type="checkbox"
          checked={areAll}
          onChange={() => onChoose(areAll ? new Set() : new Set(failed.map(({ id }) => id)))}
        />
        {failed.length < maxIds ? `All ${count(failed.length)}` : `The newest ${count(maxIds)}`}
      </label>
      <ScrollBox label="Failed records">
        <PlainTable
          rows={failed}
          keyOf={({ id }) => id}
          columns={[
            {
              head: 'Record',
              cell: ({ id }) => (
                <label class="row mono long">
                  <input type="checkbox" checked={chosen.has(id)} onChange={() => toggle(id)} />
                  {id}
                </label>
              ),
            },
            { head: 'Failed for', cell: ({ failed_seconds }) => <Whole seconds={failed_seconds} /> },
            ...(waits
              ? [{ head: 'Retry in', cell: ({ retry_seconds }: Failed) => <Whole seconds={retry_seconds} /> }]
              : []),
            { head: 'Error', cell: ({ error }) => <span class="long">{error}</span> },
          ]}
        />
      </ScrollBox>
    </>
  );
}

function ScrollBox({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <div class="scroll-box" tabIndex={0} role="region" aria-label={label}>
      {children}
    </div>
  );
}

const Whole = ({ seconds }: { seconds: number | null }) => (
  <span class="whole">{seconds === null ? '–' : durationText(seconds)}</span>
);

const outcomes: Record<string, string> = { failed: 'marked failed' };
/** The outcome for a record, in the list and in the dry run. */
export const outcomeText = (outcome: string) => outcomes[outcome] ?? spaced(outcome);

function summaryOf({ requeued, failed, held, skipped }: Handled): string {
  const parts = [
    requeued > 0 && `${plural(requeued, 'record')} requeued`,
    failed > 0 && `${failed} marked failed`,
    held > 0 && `${held} held`,
    skipped > 0 && `${skipped} skipped`,
  ].filter(Boolean);
  return parts.length > 0 ? parts.join(', ') : 'nothing to do';
}

function DryRunTable({ result }: { result: Handled }) {
  if (result.records.length === 0) return null;
  const shown = result.records.slice(0, maxShown);
  // A single outcome is in the summary above.
  const differ = new Set(result.records.map(({ outcome }) => outcome)).size > 1;
  return (
    <ScrollBox label="Result of the dry run">
      <PlainTable
        rows={shown}
        keyOf={({ id }) => id}
        columns={[
          { head: 'Record', cell: ({ id }) => <span class="mono long">{id}</span> },
          ...(differ
            ? [
                {
                  head: 'Will be',
                  cell: ({ outcome }: HandledRecord) => <span class="whole">{outcomeText(outcome)}</span>,
                },
              ]
            : []),
          {
            head: 'Why',
            cell: ({ reason, trace }) => (
              <>
                <span class="whole">{spaced(reason)}</span>
                {trace && <div class="soft small long">{trace}</div>}
              </>
            ),
          },
          { head: 'Stuck for', cell: ({ stuck_seconds }) => <Whole seconds={stuck_seconds} /> },
        ]}
      />
      {result.total > shown.length && <p class="soft small">and {result.total - shown.length} more</p>}
    </ScrollBox>
  );
}

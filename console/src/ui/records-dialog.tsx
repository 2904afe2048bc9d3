/** Reset and retry of records: always a dry run first, then a confirmation. */
import { useEffect, useState } from 'preact/hooks';
import { ask, sentenceOf } from '../api';
import { count, plural, spaced } from '../labels';
import { durationText } from '../time';
import type { FailedRecords, Handled } from '../types';
import { notify } from './messages';
import { Dialog, Note } from './parts';

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
  const [failed, setFailed] = useState<FailedRecords['records']>();
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
          {dryRun === undefined ? (
            <button
              type="button"
              class="btn primary"
              disabled={isBusy || ids?.length === 0}
              onClick={() => send(true)}
            >
              Dry run
            </button>
          ) : (
            <button
              type="button"
              class="btn primary"
              disabled={isBusy || changes === 0}
              onClick={() => send(false)}
            >
              {what === 'reset' ? `Reset ${plural(changes, 'record')}` : `Retry ${plural(changes, 'record')}`}
            </button>
          )}
        </div>
      </div>
    </Dialog>
  );
}

function FailedTable({
  failed,
  chosen,
  onChoose,
}: {
  failed: FailedRecords['records'];
  chosen: ReadonlySet<string>;
  onChoose: (ids: ReadonlySet<string>) => void;
}) {
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
      <div class="scroll-box" tabIndex={0} role="region" aria-label="Failed records">
        <table class="plain-table">
          <thead>
            <tr>
              <th scope="col">Record</th>
              <th scope="col">Failed for</th>
              {waits && <th scope="col">Retry in</th>}
              <th scope="col">Error</th>
            </tr>
          </thead>
          <tbody>
            {failed.map(({ id, error, failed_seconds, retry_seconds }) => (
              <tr key={id}>
                <td class="mono long">
                  <label class="row">
                    <input type="checkbox" checked={chosen.has(id)} onChange={() => toggle(id)} />
                    {id}
                  </label>
                </td>
                <td class="whole">{failed_seconds === null ? '–' : durationText(failed_seconds)}</td>
                {waits && <td class="whole">{retry_seconds === null ? '–' : durationText(retry_seconds)}</td>}
                <td class="long">{error ?? ''}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

/** The outcome for a record, in the list and in the dry run. */
export const outcomeLabels: Record<string, string> = {
  requeued: 'requeued',
  failed: 'marked failed',
  held: 'held',
};

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
    <div class="scroll-box" tabIndex={0} role="region" aria-label="Result of the dry run">
      <table class="plain-table">
        <thead>
          <tr>
            <th scope="col">Record</th>
            {differ && <th scope="col">Will be</th>}
            <th scope="col">Why</th>
            <th scope="col">Stuck for</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((record) => (
            <tr key={record.id}>
              <td class="mono long">{record.id}</td>
              {differ && <td class="whole">{outcomeLabels[record.outcome] ?? spaced(record.outcome)}</td>}
              <td class="long">
                <span class="whole">{spaced(record.reason)}</span>
                {record.trace && <div class="soft small">{record.trace}</div>}
              </td>
              <td class="whole">
                {record.stuck_seconds === null ? '–' : durationText(record.stuck_seconds)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {result.total > shown.length && <p class="soft small">and {result.total - shown.length} more</p>}
    </div>
  );
}

/** Reset and retry: always a dry run first, whose result is what is then confirmed. */
import { useEffect, useState } from 'preact/hooks';
import { ask, sentenceOf } from '../api';
import { durationText } from '../time';
import type { FailedRecords, Handled } from '../types';
import { count, plural, spaced } from '../words';
import { Dialog, Note } from './parts';
import { tell } from './telling';

export interface Handling {
  what: 'reset' | 'retry';
  workflow: string;
  /** Undefined: all that is stuck; a retry asks for them. */
  ids?: readonly string[];
}

const mostIds = 1000;
const mostShown = 100;

interface HandleDialogProps {
  handling: Handling;
  /** Records may have changed. */
  onHandled: () => void;
  onClose: () => void;
}

export function HandleDialog({ handling, onHandled, onClose }: HandleDialogProps) {
  const { what, workflow } = handling;
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [failed, setFailed] = useState<FailedRecords['records']>();
  const [dryRun, setDryRun] = useState<Handled>();
  const [trouble, setTrouble] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  const asksForIds = what === 'retry' && handling.ids === undefined;
  const ids = asksForIds ? [...chosen] : handling.ids;

  const send = async (dry_run: boolean) => {
    setBusy(true);
    setTrouble(undefined);
    try {
      const path = `/records/${encodeURIComponent(workflow)}/${what}`;
      const result = await ask<Handled>(path, { method: 'POST', body: { dry_run, ...(ids ? { ids } : {}) } });
      if (dry_run) setDryRun(result);
      else {
        tell(`${workflow}: ${summaryOf(result)}.`);
        onClose();
      }
    } catch (error) {
      setTrouble(sentenceOf(error));
    }
    // Also without an answer: it may have been done.
    if (!dry_run) onHandled();
    setBusy(false);
  };
  const readFailed = () =>
    ask<FailedRecords>(`/records/${encodeURIComponent(workflow)}/failed?limit=${mostIds}`).then(
      ({ records }) => setFailed(records),
      (error: unknown) => setTrouble(sentenceOf(error)),
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
        {asksForIds && failed === undefined && !trouble && <p role="status">Reading what has failed…</p>}
        {asksForIds && failed && !dryRun && (
          <FailedTable failed={failed} chosen={chosen} onChoose={setChosen} />
        )}
        {trouble && <Note tone="bad">{trouble}</Note>}
        {dryRun && (
          <>
            <Note tone={changes > 0 ? 'good' : 'warn'}>
              <b>Dry run, nothing has changed.</b> If you go on: {summaryOf(dryRun)}.
            </Note>
            <DryRunTable result={dryRun} />
          </>
        )}
        {!dryRun && isBusy && <p role="status">Looking what would happen…</p>}
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
        {failed.length < mostIds ? `All ${count(failed.length)}` : `The newest ${count(mostIds)}`}
      </label>
      <div class="scroll-box" tabIndex={0} role="region" aria-label="Failed records">
        <table class="plain-table">
          <thead>
            <tr>
              <th scope="col">Record</th>
              <th scope="col">Failed for</th>
              <th scope="col">Error</th>
            </tr>
          </thead>
          <tbody>
            {failed.map(({ id, error, failed_seconds }) => (
              <tr key={id}>
                <td class="mono long">
                  <label class="row">
                    <input type="checkbox" checked={chosen.has(id)} onChange={() => toggle(id)} />
                    {id}
                  </label>
                </td>
                <td class="whole">{failed_seconds === null ? '–' : durationText(failed_seconds)}</td>
                <td class="long">{error ?? ''}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

/** What happens to a record, in the list as in the dry run. */
export const outcomeWords: Record<string, string> = {
  requeued: 'queued again',
  failed: 'marked failed',
  held: 'left for a person',
};

function summaryOf({ requeued, failed, held, skipped }: Handled): string {
  const parts = [
    requeued > 0 && `${plural(requeued, 'record')} queued again`,
    failed > 0 && `${failed} marked failed`,
    held > 0 && `${held} left for a person`,
    skipped > 0 && `${skipped} left alone`,
  ].filter(Boolean);
  return parts.length > 0 ? parts.join(', ') : 'there is nothing to do';
}

function DryRunTable({ result }: { result: Handled }) {
  if (result.records.length === 0) return null;
  const shown = result.records.slice(0, mostShown);
  // One outcome for all is what the sentence above says already.
  const differ = new Set(result.records.map(({ outcome }) => outcome)).size > 1;
  return (
    <div class="scroll-box" tabIndex={0} role="region" aria-label="What the dry run found">
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
              {differ && <td class="whole">{outcomeWords[record.outcome] ?? spaced(record.outcome)}</td>}
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

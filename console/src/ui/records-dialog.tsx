/** Reset and retry of records: always a dry run first, then a confirmation. */
import { useState } from 'preact/hooks';
import { ask } from '../api';
import { capital, count, plural, spaced } from '../labels';
import { useRequest } from '../live/use-request';
import { durationText } from '../time';
import type { FailedRecords, Handled, HandledRecord } from '../types';
import { ActionDialog } from './dialogs';
import { notify } from './messages';
import { Note, PlainTable, Scroll } from './parts';

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
  const asksForIds = what === 'retry' && handling.ids === undefined;
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [isChosen, setIsChosen] = useState(!asksForIds);
  const ids = asksForIds ? [...chosen] : handling.ids;
  const records = `/records/${encodeURIComponent(workflow)}`;
  const failed = useRequest<FailedRecords>(asksForIds ? `${records}/failed?limit=${maxIds}` : undefined, {
    intervalMs: 0,
  });
  const dryRun = useRequest<Handled>(isChosen ? `${records}/${what}` : undefined, {
    intervalMs: 0,
    body: { dry_run: true, ids },
  });
  const result = dryRun.value;
  const changes = result ? result.requeued + result.failed : 0;
  const problem = failed.problem ?? dryRun.problem;

  const act = async () => {
    if (!result) {
      setIsChosen(true);
      dryRun.again();
      return false;
    }
    try {
      const body = { dry_run: false, ids };
      const handled = await ask<Handled>(`${records}/${what}`, { method: 'POST', body });
      notify(`${workflow}: ${summaryOf(handled)}.`);
    } finally {
      // Also after an error: the request may have been executed.
      onHandled();
    }
  };

  return (
    <ActionDialog
      title={`${capital(what)} ${what === 'reset' ? 'stuck' : 'failed'} records of ${workflow}`}
      wide
      verb={result ? `${capital(what)} ${plural(changes, 'record')}` : 'Dry run'}
      isDisabled={result ? changes === 0 : isChosen ? !problem : ids?.length === 0}
      problems={problem === undefined ? [] : [problem]}
      act={act}
      onClose={onClose}
    >
      {asksForIds && !failed.value && !problem && <p role="status">Reading failed records…</p>}
      {failed.value && !result && (
        <FailedTable failed={failed.value.records} chosen={chosen} onChoose={setChosen} />
      )}
      {result && (
        <>
          <Note tone={changes > 0 ? 'good' : 'warn'}>
            <b>Dry run, nothing has changed.</b> If you continue: {summaryOf(result)}.
          </Note>
          <DryRunTable result={result} />
        </>
      )}
      {isChosen && !result && !problem && <p role="status">Dry run in progress…</p>}
    </ActionDialog>
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
      <Scroll label="Failed records">
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
      </Scroll>
    </>
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
    <Scroll label="Result of the dry run">
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
    </Scroll>
  );
}

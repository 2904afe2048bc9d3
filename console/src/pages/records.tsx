/** The workflows with their counts, and the stuck records with reset and retry. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { count, figure, plural, spaced } from '../labels';
import { live } from '../live/live';
import { useLive, useTopics } from '../live/use-live';
import { useRequest } from '../live/use-request';
import { type Route, refine } from '../routes';
import { durationText } from '../time';
import type { HandledRecord, History, HistoryPoint, WorkflowNumbers } from '../types';
import { Chip, Empty, Figure, Note } from '../ui/parts';
import { outcomeText, type RecordsAction, RecordsDialog } from '../ui/records-dialog';
import { Spark } from '../ui/spark';
import { type Column, Table } from '../ui/table';

export function RecordsPage({ route }: { route: Route }) {
  useTopics('history', 'records');
  const { workflows, problem } = useLive(({ records }) => records);
  const state = useLive(({ status }) => status?.records);
  const history = useLive((live) => live.history);
  // Chosen once: the list must not switch to another workflow while it is used.
  const found = useRef<string | undefined>(undefined);
  found.current ??= workflows?.find(({ stuck }) => stuck > 0)?.name;
  const chosen = route.query.workflow ?? found.current ?? workflows?.[0]?.name;
  const [handling, setHandling] = useState<RecordsAction>();
  // Read again after each action: the list must not contain handled records.
  const [handledTimes, setHandledTimes] = useState(0);

  if (state === null || workflows?.length === 0) {
    return (
      <div class="page">
        <section class="card">
          <Empty icon="records" title="This router has no records">
            With <code>DATABASE_URL</code> set it claims, processes and recovers rows of your own PostgreSQL
            tables. See docs/records.md.
          </Empty>
        </section>
      </div>
    );
  }
  return (
    <div class="page">
      {problem && <Note tone="bad">{problem}</Note>}
      {state?.error && <Note tone="bad">{state.error}</Note>}
      {state?.paused && <Note tone="warn">Claiming is paused: database sessions fail.</Note>}
      {state?.braked && (
        <Note tone="warn">
          Most workers stopped their heartbeats at once; their records are not requeued yet.
        </Note>
      )}
      {!workflows && !problem && <Empty icon="records" title="Reading records…" />}
      <div class="two">
        {workflows?.map((workflow) => (
          <WorkflowCard
            key={workflow.name}
            workflow={workflow}
            history={history}
            isChosen={workflow.name === chosen}
            onChoose={() => refine({ workflow: workflow.name })}
            onRetry={() => setHandling({ what: 'retry', workflow: workflow.name })}
          />
        ))}
      </div>
      {chosen !== undefined && (
        <Stuck
          key={`${chosen} ${handledTimes}`}
          workflow={chosen}
          known={workflows?.find(({ name }) => name === chosen)?.stuck}
          onHandle={setHandling}
        />
      )}
      {handling && (
        <RecordsDialog
          handling={handling}
          onHandled={() => {
            setHandledTimes(handledTimes + 1);
            live.readRecords();
          }}
          onClose={() => setHandling(undefined)}
        />
      )}
    </div>
  );
}

const reasonNotes: Readonly<Record<string, string | undefined>> = {
  dead_worker: 'Its worker has stopped its heartbeat.',
  timed_out: 'It has run for 30 s longer than its timeout.',
  unclaimed: 'Another program set it to Processing, and its timestamp is too old.',
};

interface CardProps {
  workflow: WorkflowNumbers;
  history: History | undefined;
  isChosen: boolean;
  onChoose: () => void;
  onRetry: () => void;
}

function WorkflowCard({ workflow, history, isChosen, onChoose, onRetry }: CardProps) {
  const { name, oldest_queued_seconds: oldest, oldest_stuck_seconds: stuckFor } = workflow;
  const { processing_p99_seconds: p99 } = workflow;
  const points = (history?.points ?? []).filter((point) => point.records?.[name] !== undefined);
  const completed = ({ records }: HistoryPoint) => records?.[name]?.completed ?? null;
  const last = points.at(-1);
  return (
    <section class="card flow" aria-label={`Workflow ${name}`}>
      <header class="row">
        <h2>{name}</h2>
        {workflow.stuck > 0 ? (
          <Chip tone="bad" icon="warning">
            {plural(workflow.stuck, 'record')} stuck
          </Chip>
        ) : (
          <Chip tone="good" icon="check">
            nothing stuck
          </Chip>
        )}
      </header>
      <dl class="figures">
        <Figure
          name="Queued"
          value={count(workflow.queued)}
          note={notes(oldest !== null && `oldest ${durationText(oldest)}`, ...waitingNotes(workflow))}
        />
        <Figure
          name="Processing"
          value={count(workflow.processing)}
          note={notes(p99 !== null && `p99 ${figure(p99)} s`)}
        />
        <Figure
          name="Stuck"
          value={count(workflow.stuck)}
          bad={workflow.stuck > 0}
          note={notes(
            stuckFor !== null && `oldest ${durationText(stuckFor)}`,
            workflow.held > 0 && `${workflow.held} held`,
          )}
        />
        <Figure name="Failed" value={count(workflow.failed)} />
        <Figure name="Completed" value={figure(last && completed(last))} note="per second" />
      </dl>
      {points.length > 1 && (
        <Spark label={`${name}: records completed per second`} points={points} lines={[completed]} />
      )}
      {workflow.advice.map((advice) => (
        <p class="note small" key={advice}>
          {advice}
        </p>
      ))}
      <div class="row">
        <button type="button" class="btn small" aria-pressed={isChosen} onClick={onChoose}>
          {isChosen ? 'Shown below' : 'Show stuck records'}
        </button>
        <button type="button" class="btn small" onClick={onRetry}>
          Retry failed records…
        </button>
      </div>
    </section>
  );
}

const notes = (...parts: (string | false | null)[]) => parts.filter(Boolean).join(', ');

/** Why queued records are not claimed. */
function waitingNotes(workflow: WorkflowNumbers): (string | false)[] {
  const { waiting_for_retry: retries, next_retry_seconds: next, keys_at_limit: keys } = workflow;
  return [
    (retries ?? 0) > 0 &&
      `${count(retries)} wait for a retry${next === null ? '' : ` (next in ${durationText(next)})`}`,
    (keys ?? 0) > 0 && `${plural(keys ?? 0, 'key')} at the limit`,
  ];
}

interface StuckProps {
  workflow: string;
  /** The count in the card above. */
  known: number | undefined;
  onHandle: (handling: RecordsAction) => void;
}

function Stuck({ workflow, known, onHandle }: StuckProps) {
  const request = useRequest<{ total: number; records: HandledRecord[] }>(
    `/records/${encodeURIComponent(workflow)}/stuck?limit=1000`,
  );
  const { again } = request;
  // Read again when the count changes, so that both agree.
  useEffect(again, [again, known]);
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  const records = request.value?.records ?? [];
  const ids = records.map(({ id }) => id).filter((id) => picked.has(id));
  const pick = (id: string, isOn: boolean) => {
    const next = new Set(picked);
    if (isOn) next.add(id);
    else next.delete(id);
    setPicked(next);
  };
  const columns: Column<HandledRecord>[] = [
    {
      head: 'Choose',
      headCell: (
        <input
          type="checkbox"
          aria-label="Choose all"
          disabled={records.length === 0}
          checked={records.length > 0 && ids.length === records.length}
          indeterminate={ids.length > 0 && ids.length < records.length}
          onChange={({ currentTarget }) =>
            setPicked(new Set(currentTarget.checked ? records.map(({ id }) => id) : []))
          }
        />
      ),
      width: '22px',
      narrow: '22px',
      cell: ({ id }) => (
        <input
          type="checkbox"
          aria-label={`Choose record ${id}`}
          checked={picked.has(id)}
          onChange={(event) => pick(id, event.currentTarget.checked)}
        />
      ),
    },
    {
      head: 'Record',
      width: 'minmax(80px, 0.8fr)',
      narrow: 'minmax(0, 1fr)',
      sort: ({ id }) => id,
      cell: ({ id }) => <span class="mono">{id}</span>,
    },
    {
      head: 'Stuck for',
      width: '92px',
      narrow: '92px',
      sort: ({ stuck_seconds }) => stuck_seconds ?? 0,
      cell: ({ stuck_seconds }) => (stuck_seconds === null ? '–' : durationText(stuck_seconds)),
    },
    {
      head: 'Why',
      width: '100px',
      narrow: '92px',
      sort: ({ reason }) => reason,
      cell: ({ reason }) => <span title={reasonNotes[reason]}>{spaced(reason)}</span>,
    },
    {
      head: 'Worker',
      width: 'minmax(100px, 1fr)',
      spare: 2,
      sort: ({ worker }) => worker ?? '',
      cell: ({ worker }) => <span class="mono">{worker ?? '–'}</span>,
    },
    {
      head: 'Last note',
      width: 'minmax(140px, 1.8fr)',
      cell: ({ trace }) => <span title={trace ?? undefined}>{trace ?? <span class="soft">none</span>}</span>,
    },
    {
      head: 'Resets',
      width: '60px',
      spare: 1,
      numeric: true,
      sort: ({ resets }) => resets,
      cell: ({ resets }) => resets,
    },
    { head: 'Will be', width: '120px', cell: ({ outcome }) => outcomeText(outcome) },
  ];
  return (
    <section class="stack" aria-labelledby="stuck">
      <div class="row">
        <h2 id="stuck">Stuck in {workflow}</h2>
        <span class="soft small">{request.value ? plural(request.value.total, 'record') : ''}</span>
        <div class="row end grow">
          <button
            type="button"
            class="btn"
            disabled={ids.length === 0}
            onClick={() => onHandle({ what: 'reset', workflow, ids })}
          >
            {ids.length === 0 ? 'Reset chosen…' : `Reset ${plural(ids.length, 'record')}…`}
          </button>
          <button
            type="button"
            class="btn primary"
            disabled={records.length === 0}
            onClick={() => onHandle({ what: 'reset', workflow })}
          >
            Reset all stuck…
          </button>
        </div>
      </div>
      {request.problem && <Note tone="bad">{request.problem}</Note>}
      <Table
        label={`Stuck records of ${workflow}`}
        columns={columns}
        rows={records}
        keyOf={({ id }) => id}
        below={({ outcome, worker, trace }) =>
          [`will be ${outcomeText(outcome)}`, worker && `worker ${worker}`, trace && `last note: ${trace}`]
            .filter(Boolean)
            .join(' · ')
        }
        empty={
          request.value ? (
            <Empty icon="check" title="No stuck records">
              Every record in Processing has a live worker.
            </Empty>
          ) : (
            <Empty icon="records" title="Reading…" />
          )
        }
      />
    </section>
  );
}

/** Recoveries of calls, pods and records in one list. */
import { useMemo, useRef } from 'preact/hooks';
import { capital, count, plural, spaced, type Tone } from '../labels';
import { useTopics } from '../live/use-live';
import { useRequest } from '../live/use-request';
import { type Route, refine } from '../routes';
import { durationText, routerNow } from '../time';
import type { EventPage, Recoveries, RecoveryItem } from '../types';
import { CallLink, Chip, Choices, Empty, Figure, Note, PodLink, PoolChip, Time } from '../ui/parts';
import { type Column, Table } from '../ui/table';

const spans = [
  { value: '15', text: '15 min' },
  { value: '60', text: '1 hour' },
  { value: '360', text: '6 hours' },
] as const;

const toneOfOutcome = (outcome: string): Tone =>
  /lost|failed/.test(outcome) ? 'bad' : /held|removed/.test(outcome) ? 'warn' : 'good';

const placeOf = ({ kind, place }: RecoveryItem) =>
  place === '' ? '–' : kind === 'record' ? place : <PoolChip pool={place} />;

/** The age of a record is the time it was stuck; of a call or pod its whole age. */
function reasonOf({ kind, reason, age_seconds: age }: RecoveryItem): string {
  const why = spaced(reason);
  if (age === null) return why;
  const long = durationText(age);
  return kind === 'record' ? `${why}, stuck ${long}` : `${why}, after ${long}`;
}

const columns: Column<RecoveryItem>[] = [
  {
    head: 'When',
    width: '118px',
    narrow: '76px',
    sort: (item) => item.at,
    cell: (item) => <Time at={item.at} />,
  },
  {
    head: 'What',
    width: 'minmax(104px, 1fr)',
    narrow: 'minmax(0, 1fr)',
    sort: (item) => item.id,
    cell: ({ kind, id }) => (
      <>
        <span class="soft">{capital(kind)}</span>{' '}
        {kind === 'call' ? (
          <CallLink sid={id} />
        ) : kind === 'pod' ? (
          <PodLink name={id} />
        ) : (
          <span class="mono">{id}</span>
        )}
      </>
    ),
  },
  {
    head: 'Where',
    width: 'minmax(116px, 0.6fr)',
    spare: 1,
    sort: (item) => item.place,
    cell: placeOf,
  },
  {
    head: 'Why',
    width: 'minmax(188px, 2fr)',
    // By reason, then by age.
    sort: ({ reason, age_seconds }) => `${reason} ${age_seconds ?? 0}`,
    cell: (item) => (
      <span title={[reasonOf(item), item.detail].filter(Boolean).join('; ')}>{reasonOf(item)}</span>
    ),
  },
  {
    head: 'Outcome',
    width: '92px',
    narrow: '92px',
    sort: (item) => item.outcome,
    cell: ({ outcome }) => <Chip tone={toneOfOutcome(outcome)}>{spaced(outcome)}</Chip>,
  },
];

const minuteMs = 60_000;

/**
 * Since when recoveries of calls and pods are stored, if that is later than the period: the store may be new or flushed.
 * An event from before the period proves that the period is complete, because the oldest events are trimmed first.
 */
function useKeptOnlySince({ value, minutes }: { value: Recoveries | undefined; minutes: string }) {
  const sinceMs = value && Date.parse(value.since);
  // Rounded to minutes: the period moves with every read.
  const before = sinceMs === undefined ? undefined : Math.floor(sinceMs / minuteMs) * minuteMs;
  const page = useRequest<EventPage>(
    before === undefined ? undefined : `/events/search?limit=1&before=${before}-0`,
  ).value;
  const known = useRef<{ minutes: string; page: EventPage } | undefined>(undefined);
  if (page) known.current = { minutes, page };
  const last = known.current?.minutes === minutes ? known.current.page : undefined;
  if (!value || !last || last.events.length > 0 || sinceMs === undefined) return undefined;
  // Rare events are stored for longer.
  const oldest = value.items.findLast(({ kind }) => kind !== 'record')?.at;
  const kept = last.kept_since ?? new Date(routerNow()).toISOString();
  const since = oldest !== undefined && oldest < kept ? oldest : kept;
  return Date.parse(since) > sinceMs ? since : undefined;
}

export function RecoveryPage({ route }: { route: Route }) {
  useTopics('status');
  const { minutes = '60', kind = '' } = route.query;
  const path = `/recoveries?minutes=${/^\d{1,5}$/.test(minutes) ? minutes : '60'}`;
  const { value, problem } = useRequest<Recoveries>(path, {
    when: ({ type }) => /recovered|call_lost|pod_removed/.test(type),
  });
  const rows = useMemo(
    () => (value?.items ?? []).filter((item) => kind === '' || item.kind === kind),
    [value, kind],
  );
  const keptOnlySince = useKeptOnlySince({ value, minutes });
  const stuckFor = rows.flatMap(({ kind, age_seconds }) => (kind === 'record' ? (age_seconds ?? []) : []));
  const records = value?.records?.reduce((sum, line) => sum + line.records, 0) ?? 0;
  return (
    <div class="page full">
      <div class="row">
        <Choices
          label="Time"
          value={minutes}
          options={spans}
          onChange={(value) => refine({ minutes: value })}
        />
        <Choices
          label="Kind"
          value={kind}
          onChange={(value) => refine({ kind: value })}
          options={[
            { value: '', text: 'All' },
            { value: 'call', text: 'Calls' },
            { value: 'pod', text: 'Pods' },
            { value: 'record', text: 'Records' },
          ]}
        />
        {value && <Period since={value.since} keptOnlySince={keptOnlySince} hasRecords={records > 0} />}
      </div>
      {problem && <Note tone="bad">{problem}</Note>}
      {value && (
        <section class="card stack" aria-label="Summary">
          <dl class="figures">
            <Figure name="Calls recovered" value={count(value.calls.recovered)} />
            <Figure name="Calls lost" value={count(value.calls.lost)} bad={value.calls.lost > 0} />
            <Figure name="Pods recovered" value={count(value.pods.recovered)} />
            <Figure name="Records recovered" value={count(value.records && records)} />
            {stuckFor.length > 0 && (
              <Figure name="Longest stuck record" value={durationText(Math.max(...stuckFor))} />
            )}
          </dl>
          {value.records === null && (
            <Note tone="warn">The database does not answer: records are not counted.</Note>
          )}
          {value.records !== null && value.records.length > 0 && (
            <p class="row small">
              {value.records.map((line) => (
                <Chip
                  key={`${line.workflow} ${line.reason} ${line.outcome}`}
                  tone={toneOfOutcome(line.outcome)}
                >
                  {line.workflow}: {count(line.records)} {spaced(line.reason)}, {spaced(line.outcome)}
                </Chip>
              ))}
            </p>
          )}
        </section>
      )}
      <Table
        label="Recoveries"
        columns={columns}
        rows={rows}
        keyOf={(item) => `${item.at} ${item.kind} ${item.id} ${item.outcome}`}
        below={(item) => (
          <span title={item.detail ?? undefined}>
            {placeOf(item)} · {reasonOf(item)}
          </span>
        )}
        empty={
          value === undefined ? (
            <Empty icon="recovery" title="Reading…" />
          ) : (
            <Empty icon="check" title="No recoveries">
              No {kind === '' ? 'call, pod or record' : kind} was recovered{' '}
              {keptOnlySince === undefined || kind === 'record' ? (
                `in the last ${plural(Number(minutes), 'minute')}`
              ) : (
                <>
                  since <Time at={keptOnlySince} />; earlier events are not stored
                </>
              )}
              . Stuck records are on the page Records.
            </Empty>
          )
        }
      />
    </div>
  );
}

/** The stored period: a flushed store must not look like a quiet one. */
function Period(props: { since: string; keptOnlySince: string | undefined; hasRecords: boolean }) {
  const { since, keptOnlySince, hasRecords } = props;
  if (keptOnlySince === undefined)
    return (
      <span class="soft small">
        since <Time at={since} />
      </span>
    );
  return (
    <span class="small tone-warn" title="The store has no older events: it is new or was flushed.">
      {hasRecords ? 'calls and pods ' : ''}stored only since <Time at={keptOnlySince} />
      {hasRecords && (
        <>
          , records since <Time at={since} />
        </>
      )}
    </span>
  );
}

/** What lost its owner and what was done about it: calls, pods and records in one list. */
import { useMemo } from 'preact/hooks';
import { useAsked } from '../live/use-asked';
import { useEvents, useTopics } from '../live/use-live';
import { addressOf, type Route, refine } from '../routes';
import type { Recoveries, RecoveryItem } from '../shapes';
import { durationText } from '../time';
import { CallLink, Chip, Choices, Empty, Note, PodLink, PoolChip, Time } from '../ui/parts';
import { type Column, Table } from '../ui/table';
import { count, figure, plural, spaced, type Tone } from '../words';

const spans = [
  { value: '15', text: '15 min' },
  { value: '60', text: '1 hour' },
  { value: '360', text: '6 hours' },
] as const;
const kinds = { call: 'Call', pod: 'Pod', record: 'Record' } as const;

const toneOfOutcome = (outcome: string): Tone =>
  /lost|failed/.test(outcome) ? 'bad' : /held|removed/.test(outcome) ? 'warn' : 'good';

const columns: Column<RecoveryItem>[] = [
  {
    head: 'When',
    width: '130px',
    narrow: '76px',
    sort: (item) => item.at,
    cell: (item) => <Time at={item.at} />,
  },
  {
    head: 'What',
    width: 'minmax(150px, 1.3fr)',
    narrow: 'minmax(0, 1fr)',
    sort: (item) => item.id,
    cell: ({ kind, id }) => (
      <>
        <span class="soft">{kinds[kind] ?? kind}</span>{' '}
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
    width: 'minmax(100px, 0.8fr)',
    sort: (item) => item.place,
    cell: ({ kind, place }) => (place === '' ? '–' : kind === 'record' ? place : <PoolChip pool={place} />),
  },
  {
    head: 'Why',
    width: 'minmax(150px, 1.6fr)',
    sort: (item) => item.reason,
    cell: ({ reason, detail }) => <span title={detail ?? undefined}>{spaced(reason)}</span>,
  },
  {
    head: 'Age',
    width: '96px',
    sort: (item) => -(item.age_seconds ?? -1),
    cell: ({ age_seconds }) =>
      age_seconds === null ? <span class="soft">–</span> : durationText(age_seconds),
  },
  {
    head: 'Outcome',
    width: '120px',
    narrow: '104px',
    sort: (item) => item.outcome,
    cell: ({ outcome }) => <Chip tone={toneOfOutcome(outcome)}>{spaced(outcome)}</Chip>,
  },
];

export function RecoveryPage({ route }: { route: Route }) {
  useTopics('status');
  const { minutes = '60', kind = '' } = Object.fromEntries(route.query);
  const asked = useAsked<Recoveries>(`/recoveries?minutes=${/^\d{1,5}$/.test(minutes) ? minutes : '60'}`);
  const { value, again } = asked;
  useEvents((events) => {
    if (events.some(({ type }) => /recovered|call_lost|pod_removed/.test(type))) again();
  });
  const change = (to: Record<string, string>) =>
    refine(addressOf('recovery', undefined, { minutes, kind, ...to }));
  const rows = useMemo(
    () => (value?.items ?? []).filter((item) => kind === '' || item.kind === kind),
    [value, kind],
  );
  const oldest = rows.reduce<number | null>(
    (most, { age_seconds: age }) => (age !== null && age > (most ?? -1) ? age : most),
    null,
  );
  if (asked.isAbsent) {
    return (
      <div class="page">
        <section class="card">
          <Empty icon="recovery" title="This router keeps no list of recoveries">
            It is older than this page. The events call_recovered, call_lost and pod_recovered say the same
            one by one.
          </Empty>
        </section>
      </div>
    );
  }
  const records = value?.records?.reduce((sum, line) => sum + line.records, 0) ?? 0;
  const all = value ? value.calls.recovered + value.calls.lost + value.pods.recovered + records : 0;
  return (
    <div class="page full">
      <div class="row">
        <Choices
          label="Time"
          value={minutes}
          options={spans}
          onChange={(value) => change({ minutes: value })}
        />
        <Choices
          label="Kind"
          value={kind}
          onChange={(value) => change({ kind: value })}
          options={[
            { value: '', text: 'All' },
            { value: 'call', text: 'Calls' },
            { value: 'pod', text: 'Pods' },
            { value: 'record', text: 'Records' },
          ]}
        />
        {value && (
          <span class="soft small">
            since <Time at={value.since} />
          </span>
        )}
      </div>
      {asked.trouble && <Note tone="bad">{asked.trouble}</Note>}
      {value && (
        <section class="card stack" aria-label="Summary">
          <dl class="figures">
            <Figure name="Calls recovered" n={value.calls.recovered} />
            <Figure name="Calls lost" n={value.calls.lost} bad={value.calls.lost > 0} />
            <Figure name="Pods recovered" n={value.pods.recovered} />
            <Figure name="Records brought back" n={value.records === null ? null : records} />
            <div>
              <dt>Rate</dt>
              <dd>
                {figure(all / Number(minutes))} <small>a minute</small>
              </dd>
            </div>
            <div>
              <dt>Oldest in this list</dt>
              <dd>{oldest === null ? '–' : durationText(oldest)}</dd>
            </div>
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
        empty={
          value === undefined ? (
            <Empty icon="recovery" title="Reading…" />
          ) : (
            <Empty icon="check" title="Nothing had to be recovered">
              No {kind === '' ? 'call, pod or record' : kind} was brought back in the last{' '}
              {plural(Number(minutes), 'minute')}. What is still stuck is on the pages Calls and Records.
            </Empty>
          )
        }
      />
    </div>
  );
}

function Figure({ name, n, bad = false }: { name: string; n: number | null; bad?: boolean }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd class={bad ? 'tone-bad' : ''}>{count(n)}</dd>
    </div>
  );
}

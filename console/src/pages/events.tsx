/** Live events, followed by the stored ones. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { ask, sentenceOf } from '../api';
import { contains, count, eventName, eventTypes } from '../labels';
import { compareIds } from '../live/live';
import { useLive, useTopics } from '../live/use-live';
import { addressOf, type Route, refine } from '../routes';
import type { EventPage, RouterEvent } from '../types';
import { EventText, EventType } from '../ui/event-line';
import { Icon } from '../ui/icons';
import { Empty, Note, Search, Select, Time } from '../ui/parts';
import { type Column, Table } from '../ui/table';

const columns: Column<RouterEvent>[] = [
  { head: 'Time', width: '122px', narrow: '76px', cell: (event) => <Time at={event.at} /> },
  {
    head: 'What',
    width: '184px',
    narrow: 'minmax(0, 1fr)',
    cell: (event) => <EventType type={event.type} />,
  },
  { head: 'About', width: 'minmax(280px, 1fr)', cell: (event) => <EventText event={event} /> },
];

const pageSize = 200;
export function EventsPage({ route }: { route: Route }) {
  useTopics('status');
  const now = {
    events: useLive((state) => state.events),
    heard: useLive((state) => state.heard),
    trims: useLive((state) => state.trims),
  };
  const { q = '', type = '' } = route.query;
  const [paused, setPaused] = useState<typeof now>();
  const shown = paused ?? now;
  const past = usePast(q.trim(), type, shown);

  const rows = useMemo(() => {
    const fits = (event: RouterEvent) =>
      (type === '' || event.type === type) && contains(q, ...Object.values(event));
    const latest = shown.events.filter(fits).reverse();
    const oldestHeard = latest.at(-1)?.id;
    const seen = new Set(latest.map(({ id }) => id));
    const before = past.events.filter(
      ({ id }) => !seen.has(id) && (oldestHeard === undefined || compareIds(oldestHeard, id) > 0),
    );
    return [...latest, ...before];
  }, [shown.events, past.events, q, type]);
  const waiting = now.heard - shown.heard;

  return (
    <div class="page full">
      <div class="row">
        <Search
          label="Search events"
          placeholder="Call, pod, merchant, reason"
          value={q}
          onInput={(text) => refine({ q: text })}
        />
        <Select
          label="Kind of event"
          value={type}
          options={[['', 'All kinds'], ...eventTypes.map((name) => [name, eventName(name)] as const)]}
          onChange={(value) => refine({ type: value })}
        />
        <button
          type="button"
          class="btn"
          aria-pressed={paused !== undefined}
          onClick={() => setPaused(paused === undefined ? now : undefined)}
        >
          <Icon name={paused === undefined ? 'pause' : 'play'} />
          {paused === undefined ? 'Pause' : waiting > 0 ? `Resume (${count(waiting)} new)` : 'Resume'}
        </button>
        <span class="soft small">
          {paused === undefined ? 'Newest first, live' : 'Paused'}
          {past.keptSince && (
            <>
              ; stored since <Time at={past.keptSince} />
            </>
          )}
        </span>
      </div>
      {past.problem && <Note tone="bad">{past.problem}</Note>}
      <Table
        label="Events"
        columns={columns}
        rows={rows}
        keyOf={(event) => event.id}
        below={(event) => <EventText event={event} />}
        empty={<NoEvents q={q.trim()} type={type} />}
      />
      {past.before !== null && (
        <div class="row">
          <button type="button" class="btn" disabled={past.isBusy} onClick={past.more}>
            {past.isBusy ? 'Reading…' : 'Load older events'}
          </button>
          <span class="soft small">{count(rows.length)} shown</span>
        </div>
      )}
    </div>
  );
}

/** Suggests to remove the filters that are set. */
function NoEvents({ q, type }: { q: string; type: string }) {
  if (q === '' && type === '')
    return (
      <Empty icon="events" title="No events yet">
        Events appear here as they happen.
      </Empty>
    );
  return (
    <Empty icon="events" title="No event matches">
      {type === ''
        ? 'Try other words.'
        : q === ''
          ? 'No event of this kind is stored. Try all kinds.'
          : 'Try other words or all kinds.'}{' '}
      Recovered records are not events: they are on the page{' '}
      <a href={addressOf('recovery', undefined, { kind: 'record' })}>Recovery</a>.
    </Empty>
  );
}

interface Past {
  events: RouterEvent[];
  before: string | null;
  keptSince: string | null;
  problem?: string;
  isBusy?: boolean;
}

/**
 * The stored events, page by page, newest first. After the live list was trimmed they start at its oldest event, so that
 * none is missing between the two.
 */
function usePast(q: string, type: string, live: { events: RouterEvent[]; trims: number }) {
  const [past, setPast] = useState<Past>({ events: [], before: null, keptSince: null });
  const filters = Object.entries({ limit: String(pageSize), q, type }).filter(([, value]) => value !== '');
  const path = `/events/search?${new URLSearchParams(filters)}`;
  const oldest = useRef<string | undefined>(undefined);
  oldest.current = live.trims > 0 ? live.events[0]?.id : undefined;
  /** Discards answers to an earlier query. */
  const turn = useRef(0);

  const read = async (before: string | undefined, known: RouterEvent[]) => {
    const mine = turn.current;
    try {
      const page = await ask<EventPage>(before === undefined ? path : `${path}&before=${before}`);
      if (mine !== turn.current) return;
      setPast({ events: [...known, ...page.events], before: page.before, keptSince: page.kept_since });
    } catch (error) {
      if (mine === turn.current) setPast((last) => ({ ...last, isBusy: false, problem: sentenceOf(error) }));
    }
  };
  useEffect(() => {
    turn.current += 1;
    // A search for every letter would be too many.
    const timer = setTimeout(() => void read(oldest.current, []), 250);
    return () => {
      turn.current += 1;
      clearTimeout(timer);
    };
  }, [path, live.trims]);

  const more = () => {
    setPast({ ...past, isBusy: true });
    void read(past.before ?? undefined, past.events);
  };
  return { ...past, more };
}

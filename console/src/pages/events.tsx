/** Live events, followed by the stored ones. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { ApiError, ask, sentenceOf } from '../api';
import { eventTypes } from '../event-types';
import { count, eventName } from '../labels';
import { useLive, useTopics } from '../live/use-live';
import { addressOf, type Route, refine } from '../routes';
import type { EventPage, RouterEvent } from '../types';
import { EventText, EventType } from '../ui/event-line';
import { Icon } from '../ui/icons';
import { Empty, Note, Search, Time } from '../ui/parts';
import { type Column, Table } from '../ui/table';

const columns: Column<RouterEvent>[] = [
  { head: 'Time', width: '122px', narrow: '76px', cell: (event) => <Time at={event.at} /> },
  {
    head: 'What',
    width: '164px',
    narrow: 'minmax(0, 1fr)',
    cell: (event) => <EventType type={event.type} />,
  },
  { head: 'About', width: 'minmax(280px, 1fr)', cell: (event) => <EventText event={event} /> },
];

const pageSize = 200;
const isNewer = (a: string, b: string) => {
  const [am = 0, as = 0] = a.split('-').map(Number);
  const [bm = 0, bs = 0] = b.split('-').map(Number);
  return am === bm ? as - bs : am - bm;
};

export function EventsPage({ route }: { route: Route }) {
  useTopics('status');
  const version = useLive((state) => state.eventVersion);
  const now = {
    events: useLive((state) => state.events),
    heard: useLive((state) => state.heard),
    trims: useLive((state) => state.trims),
  };
  const { q = '', type = '' } = Object.fromEntries(route.query);
  const [paused, setPaused] = useState<typeof now>();
  const shown = paused ?? now;
  const past = usePast(q, type, shown);
  const refineTo = (change: Record<string, string>) =>
    refine(addressOf('events', undefined, { q, type, ...change }));

  // The list grows in place; the version shows that it changed.
  const rows = useMemo(() => {
    const words = q.trim().toLowerCase();
    const fits = (event: RouterEvent) =>
      (type === '' || event.type === type) &&
      (words === '' || Object.values(event).some((value) => value?.toLowerCase().includes(words)));
    const latest = shown.events.filter(fits).reverse();
    const oldestHeard = latest.at(-1)?.id;
    const seen = new Set(latest.map(({ id }) => id));
    const before = past.events.filter(
      ({ id }) => !seen.has(id) && (oldestHeard === undefined || isNewer(oldestHeard, id) > 0),
    );
    return [...latest, ...before];
  }, [shown.events, version, past.events, q, type]);
  const waiting = now.heard - shown.heard;

  return (
    <div class="page full">
      <div class="row">
        <Search
          label="Search events"
          placeholder="Call, pod, merchant, reason"
          value={q}
          onInput={(text) => refineTo({ q: text })}
        />
        <select
          class="field"
          aria-label="Kind of event"
          value={type}
          onChange={(event) => refineTo({ type: event.currentTarget.value })}
        >
          <option value="">All kinds</option>
          {eventTypes.map((name) => (
            <option key={name} value={name}>
              {eventName(name)}
            </option>
          ))}
        </select>
        <button
          type="button"
          class="btn"
          aria-pressed={paused !== undefined}
          onClick={() => setPaused(paused === undefined ? { ...now, events: [...now.events] } : undefined)}
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

/**
 * The stored events, page by page, newest first. After the live list was trimmed they start at its oldest event, so that
 * none is missing between the two.
 */
function usePast(
  q: string,
  type: string,
  { events: heard, trims }: { events: RouterEvent[]; trims: number },
) {
  const [events, setEvents] = useState<RouterEvent[]>([]);
  const [before, setBefore] = useState<string | null>(null);
  const [keptSince, setKeptSince] = useState<string | null>(null);
  const [problem, setProblem] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  const query = new URLSearchParams({
    limit: String(pageSize),
    ...(q.trim() && { q: q.trim() }),
    ...(type && { type }),
  });
  const path = `/events/search?${query}`;
  const oldest = trims > 0 ? heard[0]?.id : undefined;
  const from = useRef('');
  from.current = oldest === undefined ? path : `${path}&before=${oldest}`;
  /** Discards answers to an earlier query. */
  const turn = useRef(0);

  useEffect(() => {
    turn.current += 1;
    const mine = turn.current;
    // A search for every letter would be too many.
    const timer = setTimeout(async () => {
      try {
        const page = await ask<EventPage>(from.current);
        if (mine !== turn.current) return;
        setEvents(page.events);
        setBefore(page.before);
        setKeptSince(page.kept_since);
        setProblem(undefined);
      } catch (error) {
        if (mine === turn.current && !(error instanceof ApiError && error.isAbsent))
          setProblem(sentenceOf(error));
      }
    }, 250);
    return () => {
      turn.current += 1;
      clearTimeout(timer);
    };
  }, [path, trims]);

  const more = async () => {
    if (before === null) return;
    setBusy(true);
    const mine = turn.current;
    try {
      const page = await ask<EventPage>(`${path}&before=${encodeURIComponent(before)}`);
      if (mine === turn.current) {
        setEvents((known) => [...known, ...page.events]);
        setBefore(page.before);
      }
    } catch (error) {
      setProblem(sentenceOf(error));
    }
    setBusy(false);
  };
  return { events, before, keptSince, problem, isBusy, more };
}

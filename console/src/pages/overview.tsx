/** The overview: alerts, traffic, every pod of every pool, routers and the latest events. */
import { useMemo, useState } from 'preact/hooks';
import { count, figure, percent } from '../labels';
import { liveCalls } from '../live/live';
import { useLive, useTopics } from '../live/use-live';
import { addressOf } from '../routes';
import { clockText, durationText } from '../time';
import { levelOf, spanText, successOf, trafficOf, unservedOf } from '../traffic';
import type { HistoryPoint } from '../types';
import { Alerts } from '../ui/alerts';
import { EventText, EventType } from '../ui/event-line';
import { Empty, Time } from '../ui/parts';
import { PoolPictures } from '../ui/pool-picture';
import { Routers } from '../ui/routers';
import { Spark } from '../ui/spark';

export function OverviewPage() {
  useTopics('pods', 'history');
  return (
    <div class="page">
      <Alerts />
      <Tiles />
      <WaitTiles />
      <PoolPictures />
      <div class="two">
        <Routers />
        <Latest />
      </div>
    </div>
  );
}

type Pick = (point: HistoryPoint) => number | null;

function Tiles() {
  const history = useLive((state) => state.history);
  const absent = useLive((state) => state.absent.has('history'));
  const isKnown = useLive((state) => state.known.has('history'));
  const active = useLive(liveCalls);
  const capacity = useLive((state) =>
    Object.values(state.status?.pools ?? {}).reduce((sum, pool) => sum + pool.capacity, 0),
  );
  const points = useMemo(() => history?.points ?? [], [history]);
  const latest = points.at(-1);
  const traffic = useMemo(() => (history && points.length > 0 ? trafficOf(history) : undefined), [history]);
  const shared = { points, absent, isKnown };
  const span = traffic ? spanText(traffic.seconds) : '';
  return (
    <section class="tiles" aria-label="Traffic of the last hour">
      <Tile
        {...shared}
        title="Active calls"
        value={count(active)}
        sub={capacity > 0 ? `capacity ${count(capacity)}` : ''}
        lines={[(p) => p.active_calls]}
        show={(v) => count(v === null ? null : Math.round(v))}
      />
      <Tile
        {...shared}
        title="Calls per second"
        value={figure(latest?.allocated)}
        unit="/s"
        sub={traffic ? `${count(traffic.allocated)} ${span}` : ''}
        lines={[(p) => p.allocated]}
        show={figure}
      />
      <Tile
        {...shared}
        title="Success"
        value={percent(traffic?.success ?? null)}
        sub={span}
        note={
          traffic && traffic.shed > 0
            ? (at) => `${at ? `${figure(at.shed)}/s` : count(traffic.shed)} rejected: overloaded`
            : undefined
        }
        tone={(latest?.shed ?? 0) > 0 ? 'bad' : undefined}
        lines={[successOf]}
        show={percent}
      />
      <Tile
        {...shared}
        title="No pod free"
        value={figure(latest?.no_pods)}
        unit="/s"
        sub={traffic ? `${count(traffic.noPods)} ${span}` : ''}
        tone={(latest?.no_pods ?? 0) > 0 ? 'bad' : undefined}
        lines={[(p) => p.no_pods]}
        show={figure}
      />
      <Tile
        {...shared}
        title="Allocate p99"
        value={figure(lastKnown(points, (p) => p.p99_ms))}
        unit=" ms"
        sub={isKnown ? `p50 ${figure(lastKnown(points, (p) => p.p50_ms))} ms` : ''}
        lines={[(p) => p.p99_ms, (p) => p.p50_ms]}
        show={(v) => figure(v)}
      />
    </section>
  );
}

/** Only where calls wait, or have waited in the last hour. */
function WaitTiles() {
  const history = useLive((state) => state.history);
  const isKnown = useLive((state) => state.known.has('history'));
  const waiting = useLive((state) => state.status?.waiting_calls ?? 0);
  const oldest = useLive((state) => state.status?.oldest_wait_seconds ?? 0);
  const points = useMemo(() => history?.points ?? [], [history]);
  const traffic = useMemo(() => (history && points.length > 0 ? trafficOf(history) : undefined), [history]);
  const waits = traffic?.waits;
  const hasWaited = (waits?.served ?? 0) + (waits?.unserved ?? 0) > 0;
  if (waiting === 0 && !hasWaited && !points.some((point) => (point.waiting ?? 0) > 0)) return null;
  const shared = { points, absent: false, isKnown };
  const span = traffic ? spanText(traffic.seconds) : '';
  return (
    <section class="tiles waits" aria-label="Waiting calls of the last hour">
      <Tile
        {...shared}
        title="Waiting now"
        value={count(waiting)}
        sub={
          waiting > 0 ? `the oldest for ${durationText(oldest)}` : `${count(waits?.served)} served ${span}`
        }
        tone={oldest > longWaitSeconds ? 'bad' : undefined}
        lines={[(p) => p.waiting]}
        show={(v) => count(v === null ? null : Math.round(v))}
      />
      <Tile
        {...shared}
        title="Served within 20 s"
        value={percent(waits?.within20s ?? null)}
        sub={waits ? `${percent(waits.within5s)} within 5 s, of all calls ${span}` : ''}
        lines={[levelOf]}
        show={percent}
      />
      <Tile
        {...shared}
        title="Waits without a pod"
        value={percent(waits?.unservedShare ?? null)}
        sub={waits ? `${count(waits.unserved)} of ${count(waits.served + waits.unserved)} ${span}` : ''}
        tone={(waits?.unservedShare ?? 0) > maxUnservedShare ? 'bad' : undefined}
        lines={[unservedOf]}
        show={(v) => `${figure(v)}/s`}
      />
    </section>
  );
}

/** As the alerts. */
const longWaitSeconds = 30;
const maxUnservedShare = 0.1;

function lastKnown(points: readonly HistoryPoint[], pick: Pick): number | null {
  const found = points.findLast((point) => pick(point) !== null);
  return found ? pick(found) : null;
}

interface TileProps {
  title: string;
  value: string;
  unit?: string;
  sub: string;
  /** One more line, for all points or for the one at the pointer. */
  note?: ((point: HistoryPoint | undefined) => string) | undefined;
  tone?: 'bad' | undefined;
  points: readonly HistoryPoint[];
  absent: boolean;
  /** False until the first read. */
  isKnown: boolean;
  lines: readonly Pick[];
  show: (value: number | null) => string;
}

function Tile(props: TileProps) {
  const { title, value, unit, sub, note, tone, points, absent, isKnown, lines, show } = props;
  const [at, setAt] = useState<number>();
  // Depends on the points; the lines are new functions in every rendering.
  const data = useMemo(
    () => ({
      times: points.map((point) => Date.parse(point.at) / 1000),
      lines: lines.map((pick) => points.map(pick)),
    }),
    [points],
  );
  const pointed = at === undefined ? undefined : points[at];
  return (
    <section class="card tile" aria-label={title}>
      <div>
        <h2>{title}</h2>
        <div class={`value ${tone && !pointed ? 'tone-bad' : ''}`}>
          {pointed ? show(lines[0]?.(pointed) ?? null) : value}
          {unit && isKnown && <small>{unit}</small>}
        </div>
        <div class="sub">{pointed ? `at ${clockText(pointed.at)}` : sub}</div>
        {note && <div class="sub">{note(pointed)}</div>}
      </div>
      {points.length > 1 ? (
        <Spark label={`${title}, the last hour`} times={data.times} lines={data.lines} onPoint={setAt} />
      ) : (
        <div class="spark">
          <div class="chart-none">
            {!isKnown ? (
              <span class="skeleton" />
            ) : absent ? (
              'this router has no history'
            ) : (
              'history starts now'
            )}
          </div>
        </div>
      )}
    </section>
  );
}

const shown = 8;

function Latest() {
  const version = useLive((state) => state.eventVersion);
  const events = useLive((state) => state.events);
  // The list grows in place; the version shows that it changed.
  const latest = useMemo(() => events.slice(-shown).reverse(), [events, version]);
  return (
    <section class="card" aria-labelledby="latest">
      <header>
        <h2 id="latest">Latest events</h2>
        <a class="small" href={addressOf('events')}>
          All events
        </a>
      </header>
      {latest.length === 0 ? (
        <Empty icon="events" title="No events yet">
          Calls, pods and changes appear here as they happen.
        </Empty>
      ) : (
        <ol class="feed">
          {latest.map((event) => (
            <li key={event.id}>
              <span class="soft">
                <Time at={event.at} />
              </span>
              <EventType type={event.type} />
              <span class="ev-what">
                <EventText event={event} />
              </span>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

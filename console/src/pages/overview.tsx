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
import { type Pick, Spark } from '../ui/spark';

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

const noPoints: readonly HistoryPoint[] = [];

function useTraffic() {
  const history = useLive((state) => state.history);
  const points = history?.points ?? noPoints;
  const traffic = useMemo(() => (history && points.length > 0 ? trafficOf(history) : undefined), [history]);
  return { points, traffic, span: traffic ? spanText(traffic.seconds) : '' };
}

function Tiles() {
  const { points, traffic, span } = useTraffic();
  const isKnown = useLive((state) => state.known.has('history'));
  const active = useLive(liveCalls);
  const capacity = useLive((state) =>
    Object.values(state.status?.pools ?? {}).reduce((sum, pool) => sum + pool.capacity, 0),
  );
  const latest = points.at(-1);
  return (
    <section class="tiles" aria-label="Traffic of the last hour">
      <Tile
        title="Active calls"
        value={count(active)}
        sub={capacity > 0 ? `capacity ${count(capacity)}` : ''}
        lines={[(p) => p.active_calls]}
        show={(v) => count(v === null ? null : Math.round(v))}
      />
      <Tile
        title="Calls per second"
        value={figure(traffic?.allocatedPerSecond)}
        unit="/s"
        sub={traffic ? `${count(traffic.allocated)} ${span}` : ''}
        lines={[(p) => p.allocated]}
        show={figure}
      />
      <Tile
        title="Success"
        value={percent(traffic?.success ?? null)}
        sub={span}
        note={
          traffic && traffic.shed > 0
            ? (at) => `${at ? `${figure(at.shed)}/s` : count(traffic.shed)} rejected: overloaded`
            : undefined
        }
        isBad={(latest?.shed ?? 0) > 0}
        lines={[successOf]}
        show={percent}
      />
      <Tile
        title="No pod free"
        value={count(traffic?.noPods)}
        sub={span}
        isBad={(latest?.no_pods ?? 0) > 0}
        lines={[(p) => p.no_pods]}
        show={(v) => `${figure(v)}/s`}
      />
      <Tile
        title="Allocate p99"
        value={figure(lastKnown(points, (p) => p.p99_ms))}
        unit=" ms"
        sub={isKnown ? `p50 ${figure(lastKnown(points, (p) => p.p50_ms))} ms` : ''}
        lines={[(p) => p.p99_ms, (p) => p.p50_ms]}
        show={figure}
      />
    </section>
  );
}

/** Only where calls wait, or have waited in the last hour. */
function WaitTiles() {
  const { points, traffic, span } = useTraffic();
  const waiting = useLive((state) => state.status?.waiting_calls ?? 0);
  const oldest = useLive((state) => state.status?.oldest_wait_seconds ?? 0);
  const waits = traffic?.waits;
  const hasWaited = (waits?.served ?? 0) + (waits?.unserved ?? 0) > 0;
  if (waiting === 0 && !hasWaited && !points.some((point) => (point.waiting ?? 0) > 0)) return null;
  return (
    <section class="tiles" aria-label="Waiting calls of the last hour">
      <Tile
        title="Waiting now"
        value={count(waiting)}
        sub={
          waiting > 0 ? `the oldest for ${durationText(oldest)}` : `${count(waits?.served)} served ${span}`
        }
        isBad={oldest > longWaitSeconds}
        lines={[(p) => p.waiting]}
        show={(v) => count(v === null ? null : Math.round(v))}
      />
      <Tile
        title="Served within 20 s"
        value={percent(waits?.within20s ?? null)}
        sub={waits ? `${percent(waits.within5s)} within 5 s, of all calls ${span}` : ''}
        lines={[levelOf]}
        show={percent}
      />
      <Tile
        title="Waits without a pod"
        value={percent(waits?.unservedShare ?? null)}
        sub={waits ? `${count(waits.unserved)} of ${count(waits.served + waits.unserved)} ${span}` : ''}
        isBad={(waits?.unservedShare ?? 0) > maxUnservedShare}
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
  isBad?: boolean;
  lines: readonly Pick[];
  show: (value: number | null) => string;
}

function Tile({ title, value, unit, sub, note, isBad, lines, show }: TileProps) {
  const points = useLive((state) => state.history?.points ?? noPoints);
  const isKnown = useLive((state) => state.known.has('history'));
  const [at, setAt] = useState<number>();
  const pointed = at === undefined ? undefined : points[at];
  return (
    <section class="card tile" aria-label={title}>
      <div>
        <h2>{title}</h2>
        <div class={`value ${isBad && !pointed ? 'tone-bad' : ''}`}>
          {pointed ? show(lines[0]?.(pointed) ?? null) : value}
          {unit && isKnown && <small>{unit}</small>}
        </div>
        <div class="soft small">{pointed ? `at ${clockText(pointed.at)}` : sub}</div>
        {note && <div class="soft small">{note(pointed)}</div>}
      </div>
      {points.length > 1 ? (
        <Spark label={`${title}, the last hour`} points={points} lines={lines} onPoint={setAt} />
      ) : (
        <div class="spark chart-none">{isKnown && 'history starts now'}</div>
      )}
    </section>
  );
}

const shown = 8;

function Latest() {
  const latest = useLive((state) => state.events)
    .slice(-shown)
    .reverse();
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

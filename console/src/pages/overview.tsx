/** The whole router in one look: is anything wrong, how much goes through, and every pod of every pool. */
import { useMemo, useState } from 'preact/hooks';
import { liveCalls } from '../live/live';
import { useLive, useTopics } from '../live/use-live';
import { addressOf } from '../routes';
import type { Alert, HistoryPoint } from '../shapes';
import { clockText } from '../time';
import { Copyable } from '../ui/copyable';
import { EventText, EventType } from '../ui/event-line';
import { Age, Chip, Empty, Time } from '../ui/parts';
import { PoolPictures } from '../ui/pool-picture';
import { Spark } from '../ui/spark';
import { count, figure, percent } from '../words';

export function OverviewPage() {
  useTopics('pods', 'history');
  return (
    <div class="page">
      <Alerts />
      <Tiles />
      <PoolPictures />
      <div class="two">
        <Routers />
        <Latest />
      </div>
    </div>
  );
}

function Alerts() {
  const alerts = useLive((state) => state.alerts);
  if (!alerts || alerts.length === 0) return null;
  return (
    <section aria-label="Alerts" class="stack">
      {alerts.map((alert) => (
        <AlertLine key={`${alert.name} ${alert.workflow}`} alert={alert} />
      ))}
    </section>
  );
}

const severities: Record<Alert['severity'], string> = {
  warning: 'Warning',
  critical: 'Critical',
  page: 'Page',
};

function AlertLine({ alert }: { alert: Alert }) {
  return (
    <div class="alert" data-severity={alert.severity}>
      <Chip tone={alert.severity === 'warning' ? 'warn' : 'bad'} icon="warning">
        {severities[alert.severity] ?? alert.severity}
      </Chip>
      <span>
        <span class="what">{alert.summary}</span>{' '}
        <span class="small">
          {alert.workflow ? `${alert.workflow}, ` : ''}for <Age since={alert.since} />
        </span>
      </span>
      <span class="more">
        <AlertPlace alert={alert} />
        {/^https?:\/\//.test(alert.runbook) ? (
          <a href={alert.runbook} rel="noreferrer">
            Runbook
          </a>
        ) : (
          <Copyable
            what="Runbook"
            title="What to do: a page of the router’s documentation"
            text={alert.runbook}
          />
        )}
      </span>
    </div>
  );
}

/** Where in the console somebody sees what the alert is about. */
function AlertPlace({ alert: { name, workflow } }: { alert: Alert }) {
  if (name === 'calls.no_pods')
    return <a href={addressOf('events', undefined, { type: 'no_pods' })}>Which calls</a>;
  if (name.startsWith('records.'))
    return <a href={addressOf('records', undefined, { workflow: workflow ?? '' })}>Records</a>;
  return null;
}

type Pick = (point: HistoryPoint) => number | null;

/** Of the calls that asked, how many got a pod. */
const successOf: Pick = ({ allocated, no_pods, errors }) => {
  const failed = (no_pods ?? 0) + (errors ?? 0);
  const all = (allocated ?? 0) + failed;
  return all === 0 ? null : (allocated ?? 0) / all;
};

function Tiles() {
  const history = useLive((state) => state.history);
  const absent = useLive((state) => state.absent.has('history'));
  const active = useLive(liveCalls);
  const capacity = useLive((state) =>
    Object.values(state.status?.pools ?? {}).reduce((sum, pool) => sum + pool.capacity, 0),
  );
  const points = useMemo(() => history?.points ?? [], [history]);
  const latest = points.at(-1);
  const hour = useMemo(() => {
    const sum = (pick: Pick) => points.reduce((total, point) => total + (pick(point) ?? 0), 0);
    const [allocated, failed] = [sum((p) => p.allocated), sum((p) => (p.no_pods ?? 0) + (p.errors ?? 0))];
    const calls = allocated * (history?.step_seconds ?? 10);
    const refused = Math.round(sum((p) => p.no_pods) * (history?.step_seconds ?? 10));
    return { calls, refused, success: allocated + failed === 0 ? null : allocated / (allocated + failed) };
  }, [points, history]);
  const shared = { points, absent };
  const minutes = Math.max(1, Math.round((points.length * (history?.step_seconds ?? 10)) / 60));
  const span = minutes >= 60 ? 'in the last hour' : `in ${minutes} min`;
  return (
    <section class="tiles" aria-label="Traffic of the last hour">
      <Tile
        {...shared}
        title="Active calls"
        value={count(active)}
        sub={capacity > 0 ? `of ${count(capacity)} possible` : ''}
        lines={[(p) => p.active_calls]}
        show={(v) => count(v === null ? null : Math.round(v))}
      />
      <Tile
        {...shared}
        title="Calls per second"
        value={figure(latest?.allocated)}
        unit="/s"
        sub={points.length > 0 ? `${count(Math.round(hour.calls))} ${span}` : ''}
        lines={[(p) => p.allocated]}
        show={figure}
      />
      <Tile
        {...shared}
        title="Success"
        value={percent(hour.success)}
        sub={points.length > 0 ? span : ''}
        lines={[(p) => successOf(p)]}
        show={percent}
      />
      <Tile
        {...shared}
        title="No pod free"
        value={figure(latest?.no_pods)}
        unit="/s"
        sub={points.length > 0 ? `${count(hour.refused)} ${span}` : ''}
        tone={(latest?.no_pods ?? 0) > 0 ? 'bad' : undefined}
        lines={[(p) => p.no_pods]}
        show={figure}
      />
      <Tile
        {...shared}
        title="Allocate p99"
        value={figure(lastKnown(points, (p) => p.p99_ms))}
        unit=" ms"
        sub={`p50 ${figure(lastKnown(points, (p) => p.p50_ms))} ms`}
        lines={[(p) => p.p99_ms, (p) => p.p50_ms]}
        show={(v) => figure(v)}
      />
    </section>
  );
}

function lastKnown(points: readonly HistoryPoint[], pick: Pick): number | null {
  const found = points.findLast((point) => pick(point) !== null);
  return found ? pick(found) : null;
}

interface TileProps {
  title: string;
  value: string;
  unit?: string;
  sub: string;
  tone?: 'bad' | undefined;
  points: readonly HistoryPoint[];
  absent: boolean;
  lines: readonly Pick[];
  show: (value: number | null) => string;
}

function Tile({ title, value, unit, sub, tone, points, absent, lines, show }: TileProps) {
  const [at, setAt] = useState<number>();
  // The points decide; the lines are made anew each time.
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
          {unit && <small>{unit}</small>}
        </div>
        <div class="sub">{pointed ? `at ${clockText(pointed.at)}` : sub}</div>
      </div>
      {points.length > 1 ? (
        <Spark label={`${title}, the last hour`} times={data.times} lines={data.lines} onPoint={setAt} />
      ) : (
        <div class="spark">
          <div class="chart-none">{absent ? 'this router keeps no history' : 'history begins now'}</div>
        </div>
      )}
    </section>
  );
}

/**
 * Every router tells of itself each ten seconds, and is listed for thirty after the last time. Measured against the one
 * that told last, because what the page knows may be seconds old itself.
 */
const silentAfterMs = 15_000;

function Follower({ seenAt, newest }: { seenAt: string; newest: number }) {
  if (newest - Date.parse(seenAt) < silentAfterMs) return <>Follower</>;
  return (
    <Chip tone="warn" icon="warning">
      Silent since {clockText(seenAt)}
    </Chip>
  );
}

function Routers() {
  const history = useLive((state) => state.history);
  const status = useLive((state) => state.status);
  if (!status) return null;
  const crashed = status.loops.filter((loop) => !loop.running && loop.last_error !== null);
  const replicas = history?.replicas ?? [];
  const newest = Math.max(...replicas.map(({ seen_at }) => Date.parse(seen_at)));
  return (
    <section class="card" aria-labelledby="routers">
      <header>
        <h2 id="routers">Routers</h2>
        <span class="soft small">{status.election.lock}</span>
      </header>
      {replicas.length > 0 ? (
        <table class="plain-table">
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">Role</th>
              <th scope="col">Version</th>
              <th scope="col">Up for</th>
            </tr>
          </thead>
          <tbody>
            {replicas.map((replica) => {
              const leads = replica.name === status.leader;
              return (
                <tr key={replica.name}>
                  <td class="mono">{replica.name}</td>
                  <td>
                    {leads ? (
                      <Chip tone="good" icon="star">
                        Leader
                      </Chip>
                    ) : (
                      <Follower seenAt={replica.seen_at} newest={newest} />
                    )}
                  </td>
                  <td>{replica.version}</td>
                  <td>
                    <Age since={replica.started_at} />
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      ) : (
        <p>
          {status.leader ? (
            <>
              <b class="mono">{status.leader}</b> leads.
            </>
          ) : (
            'No leader is known to this router.'
          )}
        </p>
      )}
      {status.election.last_error && <p class="note small">Election: {status.election.last_error}</p>}
      {crashed.map((loop) => (
        <p class="note small" data-tone="bad" key={loop.name}>
          The loop {loop.name} has crashed {loop.crashes} times: {loop.last_error}
        </p>
      ))}
    </section>
  );
}

const shown = 8;

function Latest() {
  const version = useLive((state) => state.eventVersion);
  const events = useLive((state) => state.events);
  // The list grows in place, the version tells.
  const latest = useMemo(() => events.slice(-shown).reverse(), [events, version]);
  return (
    <section class="card" aria-labelledby="latest">
      <header>
        <h2 id="latest">Happening now</h2>
        <a class="small" href={addressOf('events')}>
          All events
        </a>
      </header>
      {latest.length === 0 ? (
        <Empty icon="events" title="Quiet so far">
          Calls, pods and changes appear here the moment they happen.
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

/** The routers: role, last heartbeat, and those that disappeared in the last minutes. */

import { plural } from '../labels';
import type { KnownRouter } from '../live/routers';
import { useLive } from '../live/use-live';
import { clockText, durationText } from '../time';
import { Age, Chip, PlainTable } from './parts';

export function Routers() {
  const routers = useLive((state) => state.routers);
  const status = useLive((state) => state.status);
  if (!status) return null;
  const crashed = status.loops.filter((loop) => !loop.running && loop.last_error !== null);
  const gone = routers.filter(({ is }) => is === 'gone').length;
  return (
    <section class="card" aria-labelledby="routers">
      <header>
        <h2 id="routers">Routers</h2>
        <span class="soft small">
          {gone > 0 && `${plural(gone, 'router')} gone · `}
          {status.election.lock}
        </span>
      </header>
      {routers.length > 0 ? (
        <PlainTable
          rows={routers}
          keyOf={({ name }) => name}
          columns={[
            { head: 'Name', cell: ({ name }) => <span class="mono">{name}</span> },
            {
              head: 'Role',
              cell: (router) => <Role router={router} leads={router.name === status.leader} />,
            },
            { head: 'Seen', cell: (router) => <Seen router={router} /> },
            { head: 'Up for', cell: (router) => <Uptime router={router} /> },
            { head: 'Version', class: 'wide-only', cell: ({ version }) => version },
          ]}
        />
      ) : (
        status.leader && (
          <p>
            <b class="mono">{status.leader}</b> leads.
          </p>
        )
      )}
      {status.leader === null && (
        <p class="note small" data-tone="warn">
          <b>No router leads.</b> Calls are served; pods are not added or removed until one leads.
          {status.election.last_error && <span class="raw">{status.election.last_error}</span>}
        </p>
      )}
      {status.leader !== null && status.election.last_error && (
        <p class="note small">Election: {status.election.last_error}</p>
      )}
      {crashed.map((loop) => (
        <p class="note small" data-tone="bad" key={loop.name}>
          Loop {loop.name} crashed {loop.crashes} times: {loop.last_error}
        </p>
      ))}
    </section>
  );
}

function Role({ router: { is, seen_at }, leads }: { router: KnownRouter; leads: boolean }) {
  if (is === 'gone')
    return (
      <Chip tone="bad" icon="close">
        Gone since {clockText(seen_at)}
      </Chip>
    );
  if (is === 'late')
    return (
      <Chip tone="warn" icon="warning">
        <span>
          {leads ? 'Leader, not' : 'Not'} seen for <Age since={seen_at} />
        </span>
      </Chip>
    );
  if (!leads) return <>Follower</>;
  return (
    <Chip tone="good" icon="star">
      Leader
    </Chip>
  );
}

const Seen = ({ router: { is, seen_at } }: { router: KnownRouter }) => (
  <span class={is === 'late' ? 'tone-warn' : is === 'gone' ? 'soft' : ''}>
    <Age since={seen_at} /> ago
  </span>
);

/** Without a heartbeat, the uptime at the last one. */
const Uptime = ({ router: { is, started_at, seen_at } }: { router: KnownRouter }) =>
  is === 'here' ? (
    <Age since={started_at} />
  ) : (
    <span class="soft">{durationText((Date.parse(seen_at) - Date.parse(started_at)) / 1000)}</span>
  );

/** The routers: role, last heartbeat, and those that disappeared in the last minutes. */

import { plural } from '../labels';
import type { KnownRouter } from '../live/routers';
import { useLive } from '../live/use-live';
import { clockText, durationText } from '../time';
import { Age, Chip } from './parts';

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
        <table class="plain-table">
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">Role</th>
              <th scope="col">Seen</th>
              <th scope="col">Up for</th>
              <th scope="col" class="wide-only">
                Version
              </th>
            </tr>
          </thead>
          <tbody>
            {routers.map((router) => (
              <RouterRow key={router.name} router={router} leads={router.name === status.leader} />
            ))}
          </tbody>
        </table>
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

function RouterRow({ router, leads }: { router: KnownRouter; leads: boolean }) {
  const { name, version, is, started_at, seen_at } = router;
  return (
    <tr data-is={is}>
      <td class="mono">{name}</td>
      <td>
        {is === 'gone' ? (
          <Chip tone="bad" icon="close">
            Gone since {clockText(seen_at)}
          </Chip>
        ) : is === 'late' ? (
          <Chip tone="warn" icon="warning">
            <span>
              {leads ? 'Leader, not' : 'Not'} seen for <Age since={seen_at} />
            </span>
          </Chip>
        ) : leads ? (
          <Chip tone="good" icon="star">
            Leader
          </Chip>
        ) : (
          'Follower'
        )}
      </td>
      <td class={is === 'late' ? 'tone-warn' : is === 'gone' ? 'soft' : ''}>
        <Age since={seen_at} /> ago
      </td>
      <td class={is === 'here' ? '' : 'soft'}>
        {/* Without a heartbeat the uptime at the last one is shown. */}
        {is === 'here' ? (
          <Age since={started_at} />
        ) : (
          durationText((Date.parse(seen_at) - Date.parse(started_at)) / 1000)
        )}
      </td>
      <td class="wide-only">{version}</td>
    </tr>
  );
}

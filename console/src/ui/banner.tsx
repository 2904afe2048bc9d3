/** On every page: the leader, whether the page is live or stale, and why. */
import type { ComponentChildren } from 'preact';
import { count } from '../labels';
import type { Outage } from '../live/outage';
import { useLive } from '../live/use-live';
import { clockText, durationText, useSeconds } from '../time';
import { Icon } from './icons';
import { Chip } from './parts';

export function Facts({ children }: { children: ComponentChildren }) {
  const leader = useLive((state) => state.status?.leader);
  const leaderlessSince = useLive((state) => state.leaderlessSince);
  const isKnown = useLive((state) => state.status !== undefined);
  const stale = useLive((state) => state.staleSince !== undefined);
  const is = stale ? 'stale' : isKnown ? 'live' : 'wait';
  return (
    <div class="row soft small facts">
      {leaderlessSince !== undefined ? (
        <NoLeader since={leaderlessSince} />
      ) : (
        leader && (
          <span class="fact-leader">
            Leader <b>{leader}</b>
          </span>
        )
      )}
      {children}
      <span class="live" data-is={is}>
        {{ stale: 'Stale', live: 'Live', wait: 'Reading' }[is]}
      </span>
    </div>
  );
}

/** Another router takes over within 20 s; a longer gap needs an operator. */
const takeOverMs = 30_000;

function NoLeader({ since }: { since: number }) {
  useSeconds();
  const forMs = Date.now() - since;
  return (
    <span title="Calls are served. Pods are not added or removed until a router leads.">
      <Chip tone={forMs < takeOverMs ? 'warn' : 'bad'} icon="warning">
        No leader for {durationText(forMs / 1000)}
      </Chip>
    </span>
  );
}

const consequences: Record<Outage['part'], string> = {
  store: 'The store (Redis) does not answer: new calls are rejected, live calls continue',
  router: 'The router is unreachable: this page shows its last known state',
  answer: 'The router answers late or with errors: this page shows its last known state',
};

export function Banner() {
  const since = useLive((state) => state.staleSince);
  const outage = useLive((state) => state.outage);
  const held = useLive((state) => state.status?.removals_held ?? 0);
  return (
    <div role="status" class="banners">
      {since !== undefined && (
        <div class="banner" data-tone="bad">
          <Icon name="warning" />
          <div>
            {outage && <b>{consequences[outage.part]}</b>}
            <p class="small">
              <span>Stale since {clockText(since)}, reconnecting</span>
              {outage && <span class="raw">{outage.detail}</span>}
            </p>
          </div>
        </div>
      )}
      {since === undefined && held > 0 && (
        <div class="banner" data-tone="warn">
          <Icon name="warning" />
          <div>
            <b>The removal brake holds {held === 1 ? 'one pod' : `${count(held)} pods`}</b>
            <p class="small">
              They are missing from the list of the cluster. If that is intended:{' '}
              <code>smart-router removals confirm</code>
            </p>
          </div>
        </div>
      )}
    </div>
  );
}

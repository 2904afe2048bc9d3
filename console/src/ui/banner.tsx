/** What is true of the whole router, on every page: whether what is shown is true, and whether somebody leads. */
import type { ComponentChildren } from 'preact';
import type { Trouble } from '../live/trouble';
import { useLive } from '../live/use-live';
import { clockText, durationText, useSeconds } from '../time';
import { count } from '../words';
import { Icon } from './icons';
import { Chip } from './parts';

export function Facts({ children }: { children: ComponentChildren }) {
  const leader = useLive((state) => state.status?.leader);
  const leaderlessSince = useLive((state) => state.leaderlessSince);
  const isKnown = useLive((state) => state.status !== undefined);
  const stale = useLive((state) => state.staleSince !== undefined);
  const is = stale ? 'stale' : isKnown ? 'live' : 'wait';
  return (
    <div class="facts">
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

/** Another router takes over within twenty seconds: what lasts longer does not mend itself. */
const takeOverMs = 30_000;

function NoLeader({ since }: { since: number }) {
  useSeconds();
  const forMs = Date.now() - since;
  return (
    <span title="Calls are served. Pods do not come and go until a router leads.">
      <Chip tone={forMs < takeOverMs ? 'warn' : 'bad'} icon="warning">
        No leader for {durationText(forMs / 1000)}
      </Chip>
    </span>
  );
}

const consequences: Record<Trouble['away'], string> = {
  store: 'The store (Redis) does not answer: new calls are refused, live calls go on',
  router: 'The router cannot be reached: this page shows what was true before',
  answer: 'The router answers too late or with errors: this page shows what was true before',
};

export function Banner() {
  const since = useLive((state) => state.staleSince);
  const trouble = useLive((state) => state.trouble);
  const held = useLive((state) => state.status?.removals_held ?? 0);
  return (
    <div role="status" class="banners">
      {since !== undefined && (
        <div class="banner">
          <Icon name="warning" />
          <div>
            {trouble && <b>{consequences[trouble.away]}</b>}
            <p class="small">
              <span>Stale since {clockText(since)}, reconnecting</span>
              {trouble && <span class="raw">{trouble.detail}</span>}
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
              They are missing from the cluster’s list. If they are really gone:{' '}
              <code>smart-router removals confirm</code>
            </p>
          </div>
        </div>
      )}
    </div>
  );
}

/** The frame of every page: navigation, header, banner and content. */
import type { FunctionComponent } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ask, sentenceOf } from '../api';
import { letters, useKeyboard } from '../keyboard';
import { capital, count, type Tone } from '../labels';
import { liveCalls } from '../live/live';
import { useLive } from '../live/use-live';
import { CallsPage } from '../pages/calls';
import { EventsPage } from '../pages/events';
import { OverviewPage } from '../pages/overview';
import { PodsPage } from '../pages/pods';
import { RecordsPage } from '../pages/records';
import { RecoveryPage } from '../pages/recovery';
import { RunbookPage } from '../pages/runbook';
import { TiersPage } from '../pages/tiers';
import { usePreference } from '../preferences';
import { addressOf, type PageName, pageNames, type Route, type RouteName, useRoute } from '../routes';
import type { Session } from '../types';
import { Banner, Facts } from './banner';
import { Dialog } from './dialogs';
import { FindDialog } from './find-dialog';
import { Brand, Icon } from './icons';
import { announce, Messages, notify } from './messages';
import { Choices } from './parts';

const pages: Record<RouteName, { title: string; view: FunctionComponent<{ route: Route }> }> = {
  overview: { title: 'Overview', view: OverviewPage },
  pods: { title: 'Pods', view: PodsPage },
  calls: { title: 'Calls', view: CallsPage },
  recovery: { title: 'Recovery', view: RecoveryPage },
  records: { title: 'Records', view: RecordsPage },
  tiers: { title: 'Merchants and tiers', view: TiersPage },
  events: { title: 'Events', view: EventsPage },
  runbook: { title: 'Runbook', view: RunbookPage },
};

export function Shell({ session, onLeave }: { session: Session; onLeave: () => Promise<void> }) {
  const route = useRoute();
  const [isHelpOpen, setHelpOpen] = useState(false);
  const [isFindOpen, setFindOpen] = useState(false);
  const main = useRef<HTMLElement>(null);
  const stale = useLive((state) => state.staleSince);
  const { title, view: View } = pages[route.page];

  useKeyboard({ onHelp: () => setHelpOpen(true), onFind: () => setFindOpen(true) });

  useEffect(() => {
    document.title = `${title} · Smart Router`;
    main.current?.scrollTo(0, 0);
  }, [title]);

  const leave = async () => {
    try {
      await ask('/session', { method: 'DELETE' });
      await onLeave();
    } catch (error) {
      notify(sentenceOf(error), 'bad');
    }
  };

  return (
    <div class="shell">
      <button type="button" class="btn skip" onClick={() => main.current?.focus()}>
        Skip to the page
      </button>
      <nav class="side" aria-label="Pages">
        <Brand note={session.version ? `version ${session.version}` : undefined} />
        <div class="pages">
          {pageNames.map((name, index) => (
            <a
              href={addressOf(name)}
              aria-current={name === route.page ? 'page' : undefined}
              title={`${pages[name].title} (${index + 1})`}
            >
              <Icon name={name} />
              {capital(name)}
              <Badge page={name} />
            </a>
          ))}
        </div>
        <div class="side-foot">
          <ThemeSwitch />
          <div class="row side-links">
            <button type="button" class="link quiet" onClick={() => setHelpOpen(true)}>
              Keys <kbd aria-hidden="true">?</kbd>
            </button>
            {session.required && (
              <button type="button" class="link quiet" onClick={leave}>
                Sign out
              </button>
            )}
          </div>
        </div>
      </nav>
      <div class="body">
        <header class="top">
          <h1>{title}</h1>
          <Facts>
            <button
              type="button"
              class="btn icon small"
              aria-label="Find a call or a pod"
              title="Find a call or a pod (/)"
              onClick={() => setFindOpen(true)}
            >
              <Icon name="search" />
            </button>
            <button
              type="button"
              class="btn icon small narrow-only"
              aria-label="Keys and colours"
              onClick={() => setHelpOpen(true)}
            >
              <Icon name="screen" />
            </button>
            {session.required && (
              <button type="button" class="link quiet narrow-only" onClick={leave}>
                Sign out
              </button>
            )}
          </Facts>
        </header>
        <Banner />
        <main
          id="main"
          ref={main}
          tabIndex={-1}
          // The runbook is never stale.
          data-stale={stale === undefined || route.page === 'runbook' ? undefined : ''}
          aria-label={title}
        >
          <View key={route.page} route={route} />
        </main>
      </div>
      <Messages />
      <Announcer />
      {isHelpOpen && <Help onClose={() => setHelpOpen(false)} />}
      {isFindOpen && <FindDialog onClose={() => setFindOpen(false)} />}
    </div>
  );
}

function Badge({ page }: { page: PageName }) {
  const alerts = useLive((state) => state.alerts?.length || null);
  const calls = useLive(liveCalls);
  const stuck = useLive(({ records }) => records.stuck.reduce((sum, { stuck }) => sum + stuck, 0) || null);
  const badges: { [page in PageName]?: readonly [n: number | null | undefined, tone: Tone, noun: string] } = {
    overview: [alerts, 'bad', 'alerts'],
    calls: [calls, 'plain', 'live'],
    records: [stuck, 'warn', 'stuck'],
  };
  const [n, tone, noun] = badges[page] ?? [];
  if (n === undefined || n === null) return null;
  return (
    <span class={`badge ${page === 'calls' ? 'wide-only' : ''}`} data-tone={tone}>
      {count(n)}
      <span class="hidden-visually"> {noun}</span>
    </span>
  );
}

/** Announces changes of state to screen readers. */
function Announcer() {
  const stale = useLive((state) => state.staleSince !== undefined);
  const leader = useLive((state) => state.status?.leader);
  const worst = useLive((state) => state.alerts?.find(({ severity }) => severity !== 'warning')?.summary);
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) announce(stale ? 'The page is stale. Reconnecting.' : 'Live again.');
    first.current = false;
  }, [stale]);
  const knownLeader = useRef<string | null | undefined>(undefined);
  useEffect(() => {
    if (knownLeader.current !== undefined && leader && leader !== knownLeader.current)
      announce(`${leader} is the new leader.`);
    if (knownLeader.current && leader === null) announce('No router leads. Calls are served.');
    knownLeader.current = leader;
  }, [leader]);
  useEffect(() => {
    if (worst !== undefined) announce(`Alert: ${worst}`);
  }, [worst]);
  return null;
}

function ThemeSwitch() {
  const [chosen, choose] = usePreference('theme');
  return (
    <div class="theme">
      <Choices
        label="Colours"
        value={chosen}
        options={[
          { value: 'system', title: 'System colours', text: <Icon name="screen" /> },
          { value: 'light', title: 'Light', text: <Icon name="sun" /> },
          { value: 'dark', title: 'Dark', text: <Icon name="moon" /> },
        ]}
        onChange={choose}
      />
    </div>
  );
}

function Help({ onClose }: { onClose: () => void }) {
  const [areKeysOn, setKeysOn] = usePreference('keys');
  return (
    <Dialog title="Keys and colours" onClose={onClose}>
      <div class="stack">
        <dl class="pairs">
          {pageNames.map((name, index) => (
            <>
              <dt>
                <kbd>{index + 1}</kbd> or <kbd>g</kbd> <kbd>{letters[name]}</kbd>
              </dt>
              <dd>{pages[name].title}</dd>
            </>
          ))}
          <dt>
            <kbd>/</kbd>
          </dt>
          <dd>Search this page, or find a call or a pod</dd>
          <dt>
            <kbd>Esc</kbd>
          </dt>
          <dd>Close the panel or the dialog</dd>
          <dt>
            <kbd>?</kbd>
          </dt>
          <dd>Show these keys</dd>
        </dl>
        <label class="row">
          <input
            type="checkbox"
            checked={areKeysOn === 'on'}
            onChange={(event) => setKeysOn(event.currentTarget.checked ? 'on' : 'off')}
          />
          Enable single keys (Escape always works)
        </label>
        <ThemeSwitch />
        <form method="dialog" class="row end">
          <button type="submit" class="btn primary">
            Close
          </button>
        </form>
      </div>
    </Dialog>
  );
}

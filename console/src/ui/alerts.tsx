/** Alerts, and workflows with stuck records that have no alert yet; at the top of the overview. */
import { useEffect, useRef } from 'preact/hooks';
import { plural } from '../labels';
import { useLive } from '../live/use-live';
import { addressOf, runbookAddress } from '../routes';
import { durationText } from '../time';
import type { Alert, WorkflowNumbers } from '../types';
import { notify } from './messages';
import { Age, Chip } from './parts';

export function Alerts() {
  const alerts = useLive((state) => state.alerts);
  const stuck = useLive((state) => state.records.stuck);
  const hasAlert = ({ name }: WorkflowNumbers) =>
    alerts?.some((alert) => alert.name.startsWith('records.stuck') && alert.workflow === name);
  const others = stuck.filter((workflow) => !hasAlert(workflow));
  if ((alerts ?? []).length + others.length === 0) return null;
  return (
    <section aria-label="Alerts" class="stack">
      {alerts?.map((alert) => (
        <AlertLine key={`${alert.name} ${alert.workflow}`} alert={alert} />
      ))}
      {others.map((workflow) => (
        <StuckLine key={workflow.name} workflow={workflow} />
      ))}
    </section>
  );
}

function AlertLine({ alert }: { alert: Alert }) {
  const isWarning = alert.severity === 'warning';
  return (
    <div class="alert" data-tone={isWarning ? 'warn' : 'bad'}>
      {/* Also severity `page`, which would read like a page of the console. */}
      <Chip tone={isWarning ? 'warn' : 'bad'} icon="warning">
        {isWarning ? 'Warning' : 'Critical'}
      </Chip>
      <div class="alert-body">
        <span>
          <span class="what">{alert.summary}</span>{' '}
          <span class="small">
            for <Age since={alert.since} />
          </span>
        </span>
        <span class="row small">
          <AlertPlace alert={alert} />
          <Runbook path={alert.runbook} />
        </span>
      </div>
    </div>
  );
}

/** A link to the runbook in this console if the build contains it, and its path to copy. */
function Runbook({ path }: { path: string }) {
  const isWeb = /^https?:\/\//.test(path);
  const address = isWeb ? path : runbookAddress(path);
  useEffect(() => {
    // Loaded early, in case the router becomes unreachable. The page shows an error if this fails.
    if (!isWeb) import('virtual:runbook').catch(() => {});
  }, [isWeb]);
  return (
    <>
      {address && (
        <a href={address} rel="noreferrer">
          Runbook
        </a>
      )}
      {!isWeb && (
        <span class={address && 'wide-only'}>
          <Copyable
            what={address ? '' : 'Runbook'}
            title="A page of the router’s documentation"
            text={path}
          />
        </span>
      )}
    </>
  );
}

/** A link to the page of the console that shows the cause of the alert. */
function AlertPlace({ alert: { name, workflow } }: { alert: Alert }) {
  if (name === 'calls.no_pods')
    return <a href={addressOf('events', undefined, { type: 'no_pods' })}>Affected calls</a>;
  if (name.startsWith('records.'))
    return <a href={addressOf('records', undefined, { workflow: workflow ?? '' })}>Records</a>;
  return null;
}

function StuckLine({ workflow }: { workflow: WorkflowNumbers }) {
  const { name, stuck, held = 0, oldest_stuck_seconds: oldest } = workflow;
  const more = [
    oldest !== null && `the oldest for ${durationText(oldest)}`,
    held > 0 && `${held === stuck ? 'all' : held} held`,
  ].filter(Boolean);
  return (
    <div class="alert" data-tone="warn">
      <Chip tone="warn" icon="records">
        Records
      </Chip>
      <div class="alert-body">
        <span>
          <span class="what">
            {name}: {plural(stuck, 'record')} stuck
          </span>{' '}
          <span class="small">{more.join(', ')}</span>
        </span>
        <span class="row small">
          <a href={addressOf('records', undefined, { workflow: name })}>Show records</a>
        </span>
      </div>
    </div>
  );
}

/** A text with a button that copies it. */
function Copyable({ what, title, text }: { what: string; title: string; text: string }) {
  const code = useRef<HTMLElement>(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      notify(`Copied: ${text}`);
    } catch {
      // Without TLS there is no clipboard API: the text is selected for Ctrl-C.
      if (code.current) getSelection()?.selectAllChildren(code.current);
      notify('It is selected: copy it with Ctrl or ⌘ and C.');
    }
  };
  return (
    <span class="small" title={title}>
      {what} <code ref={code}>{text}</code>{' '}
      <button type="button" class="link" aria-label={`Copy ${text}`} onClick={copy}>
        Copy
      </button>
    </span>
  );
}

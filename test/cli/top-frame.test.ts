import { describe, expect, it } from 'vitest';
import type { Alert, Call, Pod, RouterEvent, Status } from '../../src/cli/replies.js';
import { type Controls, newControls, press } from '../../src/cli/top/controls.js';
import { type Frame, frame, loadParts, poolBar } from '../../src/cli/top/frame.js';
import { poolUses, type Snapshot, type TopState } from '../../src/cli/top/snapshot.js';
import { withoutColours } from '../../src/terminal/text.js';

const now = Date.parse('2026-11-15T12:00:00Z');
const at = (agoMs: number) => new Date(now - agoMs).toISOString();

function pod(name: string, tier: string, change: Partial<Pod> = {}): Pod {
  return {
    pod_name: name,
    tier,
    is_draining: false,
    draining_until: null,
    blocked_by: null,
    has_active_lease: false,
    lease_call_sid: null,
    calls: [],
    leases: [],
    uid: '',
    last_report_at: null,
    started_at: null,
    ...change,
  };
}

function call(sid: string, podName: string, agoMs: number): Call {
  return {
    call_sid: sid,
    pod_name: podName,
    source_pool: 'pool:gold',
    merchant_id: '',
    provider: 'twilio',
    flow: 'v2',
    template: 't',
    allocated_at: at(agoMs),
    renewed_at: null,
    lease_expires_at: at(-900_000),
    fence: 7,
  };
}

const status: Status = {
  status: 'up',
  version: '1.2.3',
  pools: {
    gold: { type: 'exclusive', assigned: 12, available: 10, active_calls: 1, capacity: 12 },
    basic: { type: 'shared', assigned: 1, available: 1, active_calls: 0, capacity: 3 },
  },
  active_calls: 1,
  waiting_calls: 0,
  oldest_wait_seconds: null,
  removals_held: 0,
  is_leader: true,
  leader: 'router-0',
  election: { lock: 'none', last_error: null },
  loops: [],
  records: null,
  tier_version: 1,
  tier_config_differs: false,
  replicas_differ: [],
  store_error: null,
};

const pods = [
  pod('agent-0', 'gold', { is_draining: true, blocked_by: 'draining' }),
  pod('agent-1', 'gold', {
    calls: ['CA1'],
    leases: [{ call_sid: 'CA1', lease_expires_at: at(-900_000) }],
  }),
  ...Array.from({ length: 30 }, (_, i) => pod(`agent-${i + 2}`, 'gold')),
  pod('shared-0', 'basic'),
];
const events: RouterEvent[] = Array.from({ length: 20 }, (_, i) => ({
  id: `${now + i}-0`,
  type: 'call_allocated',
  at: new Date(now + i).toISOString(),
  call: `CA${i}`,
  pod: 'agent-1',
}));

function snapshotOf(change: Partial<Snapshot> = {}): Snapshot {
  return {
    nowMs: now,
    status,
    pods,
    calls: [call('CA-young', 'agent-1', 1000), call('CA-old', 'agent-2', 60_000)],
    listsProblem: null,
    replicas: 3,
    load: { callsPerSecond: 4.25, noPodsPerSecond: 0, p99Ms: 3.14 },
    alerts: [],
    ...change,
  };
}

function stateOf(change: Partial<TopState> = {}, snapshot = snapshotOf()): TopState {
  return {
    url: 'http://127.0.0.1:8080',
    snapshot,
    events,
    stale: undefined,
    nowMs: now,
    routerNowMs: now,
    ...change,
  };
}

function draw(controls: Controls, state = stateOf(), size = { columns: 80, rows: 24 }): Frame {
  const drawn = frame({ state, controls, ...size, hasKeys: true });
  return { ...drawn, lines: drawn.lines.map(withoutColours) };
}

/** Each key acts on the frame before it. */
function drawAfter(
  keys: readonly string[],
  state = stateOf(),
): { frame: Frame; controls: Controls; action: unknown } {
  const controls = newControls();
  let last = draw(controls, state);
  let action: unknown;
  for (const key of keys) {
    action = press(controls, key, last.rows, last.page);
    last = draw(controls, state);
  }
  return { frame: last, controls, action };
}

const selected = ({ lines }: Frame) => lines.find((line) => line.startsWith('> '))?.split(/\s+/)[1];

describe('the picture of top', () => {
  it('shows status, leader, replicas, load, pools, pods, events and keys on 80 columns and 24 rows', () => {
    const text = draw(newControls()).lines.join('\n');
    for (const part of [
      'Smart Router 1.2.3  up  http://127.0.0.1:8080',
      'calls 1 live   4.3 calls/s   0.0 no-pods/s   p99 3.1 ms',
      'leader router-0   replicas 3',
      '1/12 calls  1 busy 1 draining 30 free of 12',
      '[1 pods 33]',
      'agent-0',
      'draining',
      'last events',
      'CA19',
      'q quit',
    ])
      expect(text).toContain(part);
    expect(draw(newControls()).lines).toHaveLength(24);
  });

  it.each([
    [80, 24],
    [200, 60],
    [60, 16],
    [40, 12],
    [20, 6],
    [10, 3],
    [1, 1],
  ])('fits into %i columns and %i rows, in every view', (columns, rows) => {
    const troubled = snapshotOf({ alerts: [alert('critical')], listsProblem: 'x'.repeat(300) });
    for (const key of ['1', '2', '3', '4', '?']) {
      const controls = newControls();
      press(controls, key, [], 1);
      const stale = { sinceMs: now - 5000, reason: 'y'.repeat(300) };
      const { lines } = draw(controls, stateOf({ stale }, troubled), { columns, rows });
      expect(lines.length).toBeLessThanOrEqual(rows);
      expect(Math.max(...lines.map((line) => [...line].length))).toBeLessThanOrEqual(columns);
    }
  });

  it('shows a dash for values that cannot be read', () => {
    const load = { callsPerSecond: null, noPodsPerSecond: null, p99Ms: null };
    const text = draw(
      newControls(),
      stateOf({}, snapshotOf({ replicas: null, load, alerts: null })),
    ).lines.join('\n');
    expect(text).toContain('- calls/s   - no-pods/s   p99 -');
    expect(text).toContain('replicas -');
    expect(drawAfter(['4'], stateOf({}, snapshotOf({ alerts: null }))).frame.lines.join('\n')).toContain(
      'alerts cannot be read',
    );
  });

  it('shows since when the data is stale, and why', () => {
    const stale = { sinceMs: now - 65_000, reason: 'connection refused' };
    const text = draw(newControls(), stateOf({ stale })).lines.join('\n');
    expect(text).toMatch(/stale since \d\d:\d\d:\d\d \(1m 5s\), retrying: connection refused/);
  });

  it('shows the worst alert in every view, and all alerts in the fourth', () => {
    const state = stateOf({}, snapshotOf({ alerts: [alert('critical'), alert('warning')] }));
    expect(draw(newControls(), state).lines.join('\n')).toContain('critical: alert critical and 1 more (4)');
    expect(drawAfter(['4'], state).frame.lines.join('\n')).toMatch(
      /warning +1m 0s +name-warning +alert warning/,
    );
  });

  it('shows nothing of a name that would move the cursor', () => {
    const nasty = stateOf(
      {},
      snapshotOf({
        pods: [pod('x\u001b[2Jy\u202e', 'gold')],
        alerts: [alert('\u001b[1mz' as Alert['severity'])],
      }),
    );
    for (const key of ['1', '4'])
      expect(drawAfter([key], nasty).frame.lines.join('\n')).not.toMatch(/[\u001b\u202e]/);
  });

  it('names the page of the runbook of the selected alert, on 80 columns too', () => {
    const runbook = 'docs/runbook.md#smartrouternocapacity';
    const bad = { ...alert('critical'), runbook };
    const other = { ...alert('warning'), runbook: 'docs/runbook.md#smartrouterzombies' };
    const state = stateOf({}, snapshotOf({ alerts: [bad, other] }));
    expect(drawAfter(['4'], state).frame.lines.join('\n')).toContain(` what to do: ${runbook}\n`);
    expect(drawAfter(['4', 'down'], state).frame.lines.join('\n')).toContain(
      ` what to do: ${other.runbook}\n`,
    );
    expect(drawAfter(['1'], state).frame.lines.join('\n')).not.toContain('what to do');
    const wide = newControls();
    press(wide, '4', [], 1);
    expect(draw(wide, state, { columns: 180, rows: 24 }).lines.join('\n')).toMatch(
      /alert critical +docs\/runbook\.md#smartrouternocapacity *$/m,
    );
  });

  it('has a bar of calls against capacity, where a shared pod has several slots', () => {
    const shared = { type: 'shared', assigned: 5, available: 5, active_calls: 2, capacity: 15 } as const;
    const busy = (name: string, ...calls: string[]) => pod(name, 'basic', { calls });
    const closed = { is_draining: true, blocked_by: 'draining', calls: ['CA2'] } as const;
    const agents = [busy('b-0', 'CA1'), busy('b-1'), busy('b-2'), busy('b-3')];
    const barOf = (last: Pod) => {
      const snapshot = snapshotOf({
        status: { ...status, pools: { basic: shared } },
        pods: [...agents, last],
      });
      const [use] = poolUses(snapshot);
      return use && withoutColours(poolBar(use, 15));
    };
    expect(barOf(busy('b-4', 'CA2'))).toBe('##-------------');
    expect(barOf(pod('b-4', 'basic', { ...closed, calls: [...closed.calls] }))).toBe('##~~-----------');
  });

  it('counts waiting calls, if any', () => {
    const parts = (waiting_calls: number) =>
      withoutColours(loadParts(snapshotOf({ status: { ...status, waiting_calls } })).join(' '));
    expect(parts(3)).toContain('calls 1 live 3 waiting ');
    expect(parts(0)).not.toContain('waiting');
  });

  it('gives every state in use at least one mark', () => {
    const bar = (busy: number, draining: number, blocked: number, free: number) =>
      withoutColours(poolBar({ slots: { busy, draining, blocked, free } }, 10));
    expect(bar(1, 1, 1, 997)).toBe('#~x-------');
    expect(bar(0, 0, 0, 5)).toBe('----------');
    expect(bar(5, 0, 0, 0)).toBe('##########');
    expect(bar(999, 0, 0, 1)).toHaveLength(10);
    expect(bar(0, 0, 0, 0)).toBe('          ');
  });
});

function alert(severity: Alert['severity']): Alert {
  return {
    name: `name-${severity}`,
    severity,
    summary: `alert ${severity}`,
    since: at(60_000),
    workflow: null,
    runbook: 'docs/runbook.md',
  };
}

describe('keys of top', () => {
  it('switch views with numbers and with Tab', () => {
    expect(drawAfter(['2']).controls.view).toBe('calls');
    expect(drawAfter(['tab', 'tab']).controls.view).toBe('events');
    expect(drawAfter(['backtab']).controls.view).toBe('alerts');
    expect(drawAfter(['4', 'tab']).controls.view).toBe('pods');
  });

  it('select a row, scroll to it, and keep it when the list changes', () => {
    expect(selected(drawAfter([]).frame)).toBe('shared-0');
    expect(selected(drawAfter(['down', 'down']).frame)).toBe('agent-1');
    const end = drawAfter(['end']);
    expect(selected(end.frame)).toBe('agent-9');
    const fewer = stateOf({}, snapshotOf({ pods: pods.filter(({ pod_name }) => pod_name !== 'shared-0') }));
    expect(selected(draw(end.controls, fewer))).toBe('agent-9');
    const without = stateOf({}, snapshotOf({ pods: pods.filter(({ pod_name }) => pod_name !== 'agent-9') }));
    expect(selected(draw(end.controls, without))).toBe('agent-8');
    expect(selected(drawAfter(['pgdn', 'pgup']).frame)).toBe('shared-0');
    expect(selected(drawAfter(['up', 'home']).frame)).toBe('shared-0');
  });

  it('sort by the next column, and in reverse', () => {
    expect(selected(drawAfter(['2']).frame)).toBe('CA-old');
    expect(selected(drawAfter(['2', 'S']).frame)).toBe('CA-young');
    expect(selected(drawAfter(['s', 's']).frame)).toBe('agent-0');
    expect(drawAfter(['s', 's']).frame.lines.join('\n')).toContain('by state');
  });

  it('filter by words that are all in the row; Escape clears it', () => {
    const filtered = drawAfter(['/', ...'gold Drain', 'enter']);
    expect(filtered.frame.rows.map(({ id }) => id)).toEqual(['agent-0']);
    expect(filtered.frame.lines.join('\n')).toContain('/gold Drain: 1 of 33');
    expect(drawAfter(['/', ...'xx', 'backspace', 'backspace']).frame.rows).toHaveLength(33);
    expect(drawAfter(['/', ...'nothing']).frame.lines.join('\n')).toContain('no rows match the filter');
    expect(drawAfter(['/', ...'nothing', 'escape']).frame.rows).toHaveLength(33);
    expect(drawAfter(['/', 'q']).action).toBeUndefined();
  });

  it('drain only after a yes, and the pod that was selected at the question', () => {
    const asked = drawAfter(['down', 'd']);
    expect(asked.frame.lines.at(-1)).toContain('Drain agent-0: no new calls, running calls continue? y yes');
    expect(asked.action).toBeUndefined();
    expect(press(asked.controls, 'y', [], 1)).toEqual({ do: 'drain', pod: 'agent-0' });
    expect(drawAfter(['down', 'd', 'enter']).action).toBeUndefined();
    expect(drawAfter(['down', 'd', 'q']).frame.lines.at(-1)).toContain('agent-0 not changed');
    expect(drawAfter(['down', 'u', 'y']).action).toEqual({ do: 'undrain', pod: 'agent-0' });
    expect(drawAfter(['2', 'd']).frame.lines.at(-1)).toContain('drain needs a pod');
  });

  it('quit, also from the help', () => {
    expect(drawAfter(['q']).action).toEqual({ do: 'quit' });
    expect(drawAfter(['interrupt']).action).toEqual({ do: 'quit' });
    expect(drawAfter(['/', 'interrupt']).action).toEqual({ do: 'quit' });
    expect(drawAfter(['?', 'q']).action).toEqual({ do: 'quit' });
    expect(drawAfter(['?']).frame.lines.join('\n')).toContain('Ctrl-L');
  });
});

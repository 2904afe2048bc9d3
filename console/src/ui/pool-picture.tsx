/**
 * Every pool as a picture with one cell per pod. Shape and colour have the same meaning: empty is free, filled is busy (as
 * high as its load; amber when the pool is full), striped is draining, dashed with a cross is blocked, dotted is missing:
 * up to the target of the tier or, in a merchant's pool, which has none, pods that were removed in the last two minutes.
 */
import { memo } from 'preact/compat';
import { useMemo, useState } from 'preact/hooks';
import {
  collator,
  count,
  isMerchantPool,
  type PodState,
  plural,
  podStates,
  poolName,
  stateLabels,
  stateOf,
  stateText,
} from '../labels';
import type { LostPod } from '../live/lost-pods';
import { useFleet, useLive } from '../live/use-live';
import { useRequest } from '../live/use-request';
import { addressOf, go } from '../routes';
import { clockText } from '../time';
import type { Pod, Pool, Tier, Tiers } from '../types';
import { Countdown, Empty, StateSign } from './parts';

/** With more pods a bar replaces the cells, which would be too small to point at. */
const maxCells = 1500;
/** More missing pods are shown as a number only. */
const maxMissingCells = 24;
const targetsIntervalMs = 60_000;

interface PoolView {
  name: string;
  pool: Pool;
  pods: Pod[];
  missing: Missing | undefined;
}

interface Missing {
  n: number;
  text: string;
}

export function PoolPictures() {
  const pods = useFleet('pods');
  const pools = useLive((state) => state.status?.pools);
  const isKnown = useLive((state) => state.known.has('pods'));
  const [tip, setTip] = useState<{ pod: string; x: number; y: number }>();
  const tiers = useRequest<Tiers>('/tiers', {
    intervalMs: targetsIntervalMs,
    when: ({ type }) => type === 'tiers_changed',
  }).value?.tiers;
  const lost = useLive((state) => state.lostPods);
  const views = useMemo(() => viewsOf(pods, pools ?? {}, tiers, lost), [pods, pools, tiers, lost]);

  if (!isKnown) return null;
  if (views.length === 0) {
    return (
      <section class="card">
        <Empty icon="pods" title="No pools yet">
          Pods appear here when the leader finds them. Check <code>POD_LABEL_SELECTOR</code> and{' '}
          <code>smart-router doctor</code> if you expected some.
        </Empty>
      </section>
    );
  }
  const cellOf = (target: EventTarget | null) =>
    target instanceof HTMLElement ? target.dataset.pod : undefined;
  const point = (event: MouseEvent) => {
    const pod = cellOf(event.target);
    if (pod === undefined) return setTip(undefined);
    if (tip?.pod === pod) return;
    const { left, bottom } = (event.target as HTMLElement).getBoundingClientRect();
    setTip({ pod, x: Math.min(left, innerWidth - 310), y: bottom + 8 });
  };
  const open = (event: MouseEvent) => {
    const pod = cellOf(event.target);
    if (pod !== undefined) go(addressOf('pods', pod));
  };
  const tipped = tip && pods.find(({ pod_name }) => pod_name === tip.pod);
  return (
    <section class="stack" aria-label="Pools">
      {/* biome-ignore lint/a11y: the headings lead to the same pods as links */}
      <div class="pools" onMouseOver={point} onMouseLeave={() => setTip(undefined)} onClick={open}>
        {views.map((view) => (
          <PoolCard key={view.name} {...view} />
        ))}
      </div>
      <Legend />
      {tip && tipped && (
        <div class="tip" style={{ left: `${tip.x}px`, top: `${tip.y}px` }}>
          <b class="mono">{tipped.pod_name}</b> {stateText(tipped)}
          {tipped.leases.map((lease) => (
            <div key={lease.call_sid}>
              <span class="mono">{lease.call_sid}</span>{' '}
              <span class="soft">
                lease <Countdown until={lease.lease_expires_at} />
              </span>
            </div>
          ))}
        </div>
      )}
    </section>
  );
}

function missingFrom(
  name: string,
  there: number,
  tiers: Record<string, Tier> | undefined,
  lost: readonly LostPod[],
): Missing | undefined {
  const target = tiers?.[name]?.target;
  if (target !== undefined)
    return there < target
      ? { n: target - there, text: `${count(target - there)} missing of ${count(target)}` }
      : undefined;
  const left = lost.filter(({ tier }) => tier === name);
  const first = left[0];
  return first && { n: left.length, text: `${left.length} removed since ${clockText(first.atMs)}` };
}

function viewsOf(
  pods: readonly Pod[],
  pools: Record<string, Pool>,
  tiers: Record<string, Tier> | undefined,
  lost: readonly LostPod[],
): PoolView[] {
  const byTier = Map.groupBy(pods, (pod) => pod.tier);
  const rank = (name: string) => (isMerchantPool(name) ? 2 : pools[name]?.type === 'shared' ? 1 : 0);
  const none: Pool = { type: 'exclusive', assigned: 0, available: 0, active_calls: 0, capacity: 0 };
  return [...new Set([...Object.keys(pools), ...byTier.keys()])]
    .filter((name) => name !== '')
    .sort((a, b) => rank(a) - rank(b) || collator.compare(a, b))
    .map((name) => {
      const there = byTier.get(name) ?? [];
      return {
        name,
        pool: pools[name] ?? none,
        pods: there.sort((a, b) => collator.compare(a.pod_name, b.pod_name)),
        missing: missingFrom(name, there.length, tiers, lost),
      };
    });
}

export function tally(pods: readonly Pod[]): Record<PodState, number> {
  const counts = { free: 0, busy: 0, draining: 0, blocked: 0 };
  for (const pod of pods) counts[stateOf(pod)] += 1;
  return counts;
}

function PoolCard({ name, pool, pods, missing }: PoolView) {
  const counts = tally(pods);
  const calls = pods.reduce((sum, pod) => sum + pod.leases.length, 0);
  const maxCalls =
    pool.type === 'shared' && pool.assigned > 0 ? Math.max(1, Math.round(pool.capacity / pool.assigned)) : 1;
  const isFull = pods.length > 0 && !pods.some((pod) => hasRoom(pod, maxCalls));
  const fullText = counts.busy > 0 ? 'full' : 'takes no calls';
  const words = podStates
    .filter((state) => counts[state] > 0)
    .map((state) => `${counts[state]} ${stateLabels[state].toLowerCase()}`)
    .concat(isFull ? [fullText] : [], missing ? [missing.text] : []);
  const label = `${poolName(name)}: ${plural(pods.length, 'pod')}, ${plural(calls, 'call')}. ${words.join(', ')}`;
  const size = pods.length <= 48 ? 24 : pods.length <= 120 ? 20 : pods.length <= 400 ? 14 : 10;
  const kind =
    { exclusive: 'one call each', shared: `up to ${maxCalls} calls each`, gone: 'deleted tier' }[pool.type] ??
    pool.type;
  return (
    <section class="card pool" aria-label={poolName(name)} data-full={isFull ? '' : undefined}>
      <header>
        <h2>
          <a href={addressOf('pods', undefined, { tier: name })}>{poolName(name)}</a>
        </h2>
        <span class="soft small">{isMerchantPool(name) ? 'merchant' : kind}</span>
      </header>
      <p class="headline">
        <b>{count(calls)}</b> of {count(Math.max(pool.capacity, calls))} calls
        {isFull && <b class="full">{fullText}</b>}
      </p>
      {pods.length > maxCells ? (
        <div class="poolbar" role="img" aria-label={label}>
          {podStates.map((state) => (
            <div key={state} data-is={state} style={{ flex: counts[state] }} />
          ))}
        </div>
      ) : pods.length === 0 && !missing ? (
        <p class="soft small">This pool has no pods.</p>
      ) : (
        <div
          class="cells"
          role="img"
          aria-label={label}
          style={{ '--size': `${size}px`, '--gap': size < 16 ? '3px' : '5px' }}
        >
          {pods.map((pod) => (
            <Cell key={pod.pod_name} pod={pod} maxCalls={maxCalls} numbers={size >= 20 && maxCalls > 1} />
          ))}
          {Array.from({ length: Math.min(missing?.n ?? 0, maxMissingCells) }, (_, index) => (
            <div class="cell" data-is="missing" key={`missing ${index}`} title={missing?.text} />
          ))}
        </div>
      )}
      <p class="row soft small counts">
        {podStates
          .filter((state) => counts[state] > 0 || state === 'free')
          .map((state) => (
            <span key={state} class={state === 'free' && isFull ? 'tone-warn' : undefined}>
              {count(counts[state])} {stateLabels[state].toLowerCase()}
            </span>
          ))}
        {missing && <b class="tone-bad">{missing.text}</b>}
      </p>
    </section>
  );
}

function hasRoom(pod: Pod, maxCalls: number): boolean {
  const state = stateOf(pod);
  return state === 'free' || (state === 'busy' && pod.leases.length < maxCalls);
}

interface CellProps {
  pod: Pod;
  maxCalls: number;
  numbers: boolean;
}

const Cell = memo(function Cell({ pod, maxCalls, numbers }: CellProps) {
  const state = stateOf(pod);
  const calls = pod.leases.length;
  return (
    <div
      class="cell"
      data-pod={pod.pod_name}
      data-is={state}
      data-calls={calls > 0 ? calls : undefined}
      data-full={calls >= maxCalls ? '' : undefined}
      style={{ '--load': Math.min(100, (100 * calls) / maxCalls) }}
    >
      {numbers && calls > 0 ? calls : ''}
    </div>
  );
});

function Legend() {
  return (
    <div class="row soft small">
      {podStates.map((state) => (
        <span class="mark" key={state}>
          <StateSign state={state} />
          {stateLabels[state]}
        </span>
      ))}
      <span
        class="mark"
        title="Up to the target of the tier; in a merchant’s pool, pods removed in the last two minutes"
      >
        <StateSign state="missing" />
        Missing
      </span>
      <span>Number: calls on a shared pod</span>
      <span>Amber: the pool is full</span>
    </div>
  );
}

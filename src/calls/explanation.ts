/** Says in words what an allocate would do, for the API, the command line and the console. */
import { AppError, type ErrorCode } from '../errors.js';
import type { Chain } from './chain.js';
import {
  type ChainStep,
  type Explanation,
  type NextPlace,
  type PodState,
  podStates,
} from './store/outcome.js';
import type { HoldRules } from './store/store.js';

export interface ExplainedCall extends Explanation {
  /** Empty: any new call. */
  callSid: string;
  merchantId: string;
  skipped: Chain['skipped'];
  /** Undefined: the call may not wait. */
  hold: HoldRules | undefined;
}

export interface Verdict {
  would: 'allocate' | 'wait' | 'refuse';
  code: ErrorCode | null;
  /** One sentence with the answer. */
  summary: string;
  steps: (ChainStep & { result: 'taken' | 'passed_over' | 'not_tried'; reason: string })[];
  /** What would free a place, the earliest first; those without a time last. Empty if the call would get a pod. */
  next: { text: string; atMs: number | undefined }[];
}

export function judge(explained: ExplainedCall): Verdict {
  const { allocation, waiting, refusal } = explained.outcome;
  if (!allocation && !waiting && !refusal) {
    throw new AppError('internal', 'the store did not say what an allocate would do');
  }
  const code =
    allocation || waiting ? null : refusal === 'wait_over' ? 'wait_expired' : (refusal ?? 'no_pods');
  return {
    would: allocation ? 'allocate' : waiting ? 'wait' : 'refuse',
    code,
    summary: summaryOf(explained, code),
    steps: explained.steps.map((step, index) => ({ ...step, ...judgeStep(explained, step, index) })),
    next: allocation ? [] : nextPlaces(explained),
  };
}

function summaryOf(explained: ExplainedCall, code: ErrorCode | null): string {
  const { callSid, merchantId, outcome, isAtLimit, maxCalls, liveCalls, waitingAll, steps } = explained;
  const { allocation, waiting } = outcome;
  const call = callSid === '' ? 'a new call' : `call ${callSid}`;
  const who = merchantId === '' ? call : `${call} of ${merchantId}`;
  if (allocation?.wasExisting) return `${who} has pod ${allocation.podName} of ${allocation.sourcePool}`;
  if (allocation)
    return `${who} would get a pod of ${allocation.sourcePool}, for example ${allocation.podName}`;
  const limit = `${merchantId} has ${count(liveCalls, 'live call')}, and its max_calls is ${maxCalls}`;
  const short = isAtLimit ? limit : steps.length === 0 ? 'its chain is empty' : 'no pod of its chain is free';
  if (waiting) return `${who} would wait at place ${waiting.position} of its queue: ${short}`;
  if (code === 'wait_expired') return `${who} would be refused (wait_expired): its wait is over`;
  const queue =
    code === 'queue_full' ? `; ${count(waitingAll, 'call')} wait, as many as max_waiting allows` : '';
  return `${who} would be refused (${code}): ${short}${queue}`;
}

type StepVerdict = Pick<Verdict['steps'][number], 'result' | 'reason'>;

function judgeStep(explained: ExplainedCall, step: ChainStep, index: number): StepVerdict {
  const { allocation } = explained.outcome;
  const notTried = (reason: string): StepVerdict => ({ result: 'not_tried', reason });
  if (allocation?.wasExisting) return notTried('the call has a pod');
  if (explained.isAtLimit) return notTried('the merchant is at its max_calls');
  const taken = allocation ? explained.steps.findIndex(({ pool }) => pool === allocation.sourcePool) : -1;
  if (!allocation || index < taken) return { result: 'passed_over', reason: whyPassedOver(step) };
  if (index > taken) return notTried(`${allocation.sourcePool} has a pod`);
  if (explained.podBlockedBy === 'flapping') {
    return { result: 'taken', reason: 'a pod that is set back: the chain has no other free pod' };
  }
  const expired = allocation.reclaimed;
  return {
    result: 'taken',
    reason: expired > 0 ? `${count(expired, 'expired call')} would end` : 'a free pod',
  };
}

function whyPassedOver({ kind, isDeleted, pods, lookedAt, counts }: ChainStep): string {
  if (isDeleted) return 'its tier was deleted';
  if (!kind) return 'the pool does not exist';
  if (pods === 0) return 'no pods';
  const nameOf = (state: PodState) => (state === 'flapping' ? 'set back' : state.replaceAll('_', ' '));
  const parts = podStates
    .filter((state) => counts[state] > 0)
    .map((state) => `${counts[state]} ${nameOf(state)}`);
  const sample = lookedAt < pods ? ` (of ${lookedAt} pods looked at)` : '';
  return `no pod can take a call: ${parts.join(', ')}${sample}`;
}

function nextPlaces(explained: ExplainedCall): Verdict['next'] {
  const { nowMs, isAtLimit, next, merchantId, steps } = explained;
  const timed = next
    .filter(({ what }) => (what === 'limit') === isAtLimit)
    .sort((a, b) => a.atMs - b.atMs)
    .map((place) => ({ text: placeText(place, nowMs), atMs: place.atMs }));
  const texts = isAtLimit ? [`a call of ${merchantId} ends`] : steps.flatMap(untimedPlaces);
  return [...timed, ...texts.map((text) => ({ text, atMs: undefined }))];
}

function placeText({ what, podName, callSid, atMs }: NextPlace, nowMs: number): string {
  const when = `in ${spanText(atMs - nowMs)}`;
  if (what === 'drain') return `drain of ${podName} ends ${when}`;
  return `lease of ${callSid} on ${podName} expires ${when}, unless it is renewed`;
}

function untimedPlaces({ pool, kind, counts, pods }: ChainStep): string[] {
  const ofPool = (number: number, one: string, many: string) =>
    number === 0 ? [] : [`${count(number, 'pod')} of ${pool} ${number === 1 ? one : many}`];
  return [
    ...(counts.busy > 0 ? [`a call on ${pool} ends`] : []),
    ...ofPool(counts.not_ready, 'becomes ready', 'become ready'),
    ...ofPool(counts.awaiting_report, 'reports', 'report'),
    ...ofPool(counts.unconfirmed, 'is listed by the pod source again', 'are listed by the pod source again'),
    ...ofPool(counts.misplaced, 'is made available by the sweep', 'are made available by the sweep'),
    ...(kind && pods === 0 ? [`a pod registers in ${pool}`] : []),
  ];
}

function spanText(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  return seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}

/**
 * Decides which status callbacks mean that a call has ended.
 *
 * A false end frees the pod of a live call; a missed one costs a lease. So a live status always wins, an unknown status
 * is ignored, and only an end that the provider documents counts:
 * - Twilio: `CallStatus`.
 * - Plivo: `CallStatus`; else `Event=Hangup`; else a `HangupCause`, which is absent until the call is hung up.
 *   Stream events (`StopStream`, `DroppedStream`) are not the end of a call.
 * - Exotel: `EventType` or `CallState` (`terminal`); else `Status` (status callback) or `CallStatus` (applets).
 *   Applets also send `CallType=completed` and `Stream[Status]=completed` while the caller is still on the line.
 */
export const PROVIDERS = ['twilio', 'plivo', 'exotel'] as const;
export type Provider = (typeof PROVIDERS)[number];

type StatusParams = Readonly<Record<string, string | undefined>>;

/** Normalized: lower case, without `-`, `_` and spaces. */
const LIVE = new Set(['queued', 'initiated', 'ringing', 'inprogress', 'answered', 'active']);
const FINAL = ['completed', 'busy', 'failed', 'noanswer', 'canceled', 'cancelled'];
const FINAL_WORDS: Readonly<Record<Provider, ReadonlySet<string>>> = {
  twilio: new Set(FINAL),
  plivo: new Set([...FINAL, 'cancel', 'timeout']),
  exotel: new Set([...FINAL, 'terminal']),
};

/** The provider's id of the call: `CallSid`, for Plivo `CallUUID`. */
export function callSidOf(provider: Provider, params: StatusParams): string | undefined {
  return pick(params, provider === 'plivo' ? 'CallUUID' : 'CallSid');
}

export function isFinalStatus(provider: Provider, params: StatusParams): boolean {
  const words = statusFields(provider).flatMap((name) => normalize(pick(params, name)) ?? []);
  if (words.some((word) => LIVE.has(word))) return false;
  if (words.some((word) => FINAL_WORDS[provider].has(word))) return true;
  if (provider !== 'plivo') return false;
  const event = normalize(pick(params, 'Event'));
  // Any other event means that this is not the hangup callback, even with a HangupCause.
  return event === undefined ? pick(params, 'HangupCause') !== undefined : event === 'hangup';
}

function statusFields(provider: Provider): string[] {
  return provider === 'exotel' ? ['EventType', 'CallState', 'Status', 'CallStatus'] : ['CallStatus'];
}

function normalize(word: string | undefined): string | undefined {
  return word?.toLowerCase().replace(/[\s_-]+/g, '');
}

/** Ignores case if the exact name is absent: Exotel's newer pages write parameter names in lower case. */
function pick(params: StatusParams, name: string): string | undefined {
  const wanted = name.toLowerCase();
  const key = Object.hasOwn(params, name)
    ? name
    : Object.keys(params).find((each) => each.toLowerCase() === wanted);
  const value = key === undefined ? undefined : params[key]?.trim();
  return value === '' ? undefined : value;
}

/**
 * Builds the URL at which a voice-agent pod takes a call.
 *
 * Guarantee: the result stays inside the configured path for any query of a webhook: each value is one percent-encoded
 * path segment. `.` and `..` are rejected, because the WHATWG URL parser treats `%2e%2e` as "go up", too. Check with
 * `isPathSegment` before the allocation: `buildWsUrl` throws on such a value.
 */

/**
 * Exotel rejects stream URLs over 600 characters. Counted as in JSON Schema, in characters and not in UTF-16 units, so
 * that the API and the webhooks agree.
 */
export const MAX_SEGMENT_LENGTH = 256;

export function defaultCallTemplate(provider: string): string {
  return provider === 'exotel' ? 'template' : 'order-confirmation';
}

/** Whether a value can stand as one path segment without changing the path around it. */
export function isPathSegment(value: string): boolean {
  // A character has one or two units, so only a value of between one and two times the limit has to be counted.
  if (value.length === 0 || value.length > 2 * MAX_SEGMENT_LENGTH) return false;
  if (value.length > MAX_SEGMENT_LENGTH && [...value].length > MAX_SEGMENT_LENGTH) return false;
  if (value === '.' || value === '..') return false;
  // Lone surrogates would make encodeURIComponent throw.
  return !/[\p{Cc}\p{Surrogate}]/u.test(value);
}

/** `template` is WS_URL_TEMPLATE, `baseUrl` VOICE_AGENT_BASE_URL, with or without a trailing slash. */
export function buildWsUrl(
  parts: Record<'template' | 'baseUrl' | 'pod' | 'provider' | 'callTemplate' | 'flow', string>,
): string {
  const values: Record<string, string> = {
    base: parts.baseUrl.replace(/\/+$/, ''),
    pod: segment('pod', parts.pod),
    provider: segment('provider', parts.provider),
    template: segment('template', parts.callTemplate),
    flow: parts.flow === 'v2' ? '/v2' : '',
  };
  // One pass with a function: a value that contains "{pod}" or "$&" is not expanded again.
  return parts.template.replace(
    /\{(base|pod|provider|template|flow)\}/g,
    (_placeholder, name: string) => values[name] ?? '',
  );
}

function segment(field: string, value: string): string {
  if (!isPathSegment(value)) {
    throw new RangeError(
      `${field} must be 1 to ${MAX_SEGMENT_LENGTH} characters without control characters, not "." or ".."`,
    );
  }
  return encodeURIComponent(value);
}

/** Checks that hold for every response of a router. */
import { expect } from 'vitest';
import { type ErrorCode, errorCodes } from '../../src/errors.js';
import type { Answer, TestRouter } from '../support/router.js';

/** Only for tests, and long enough to be recognised in any text. */
export const secrets = {
  SMART_ROUTER_API_KEY: 'fuzz-api-key-0123456789abcdef',
  SMART_ROUTER_ADMIN_KEY: 'fuzz-admin-key-0123456789abcdef',
  TWILIO_AUTH_TOKEN: 'fuzz-twilio-token-0123456789',
  PLIVO_AUTH_TOKEN: 'fuzz-plivo-token-0123456789',
  EXOTEL_WEBHOOK_TOKEN: 'fuzz-exotel-token-0123456789',
};

/** The machine may be busy with other tests, which is not an overload of this router. */
export const unhurried = { OVERLOAD_DELAY: 'off' };

export const asAdmin = { authorization: `Bearer ${secrets.SMART_ROUTER_ADMIN_KEY}` };

const longestSentence = 2000;
/** A list of every problem of a configuration of 64 KiB included. */
const longestRefusal = 32 * 1024;

/** Which rules the answer breaks; none is good. */
export function faultsOf(answer: Answer): string[] {
  const { status, text, body } = answer;
  const faults = Object.values(secrets)
    .filter((secret) => text.includes(secret))
    .map(() => 'a secret is in the answer');
  if (status < 400) return faults;
  if (status === 500) faults.push('an unexpected error');
  if (text.length > longestRefusal) faults.push(`a refusal of ${text.length} characters`);
  if (body?.success !== false || typeof body.error !== 'string')
    return [...faults, 'not the shape of an error'];
  if (errorCodes[body.code as ErrorCode] !== status) faults.push(`code ${body.code} with status ${status}`);
  if (body.error === '' || body.error.length > longestSentence)
    faults.push(`a sentence of ${body.error.length} characters`);
  for (const line of [body.error, ...(body.problems ?? [])]) {
    if (/[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069]/u.test(line))
      faults.push('a sentence of more than one line');
    if (/\bat .+:\d+:\d+|node_modules|\/src\//.test(line)) faults.push('a stack trace');
  }
  return faults;
}

export function expectGood(answer: Answer, asked: unknown): void {
  const faults = faultsOf(answer);
  if (faults.length > 0)
    expect.fail(
      `${faults.join(', ')}: ${answer.status} ${answer.text.slice(0, 600)} to ${JSON.stringify(asked)?.slice(0, 1500)}`,
    );
}

/** The log holds no secret and no unexpected error. */
export function expectCleanLog(router: TestRouter): void {
  const text = router.logText();
  for (const [name, secret] of Object.entries(secrets)) expect(text.includes(secret), name).toBe(false);
  // An alert about calls without a pod is what the requests asked for.
  const surprises = router
    .logs()
    .filter(
      ({ level, condition }) => ['error', 'fatal'].includes(String(level)) && condition !== 'calls.no_pods',
    );
  expect(surprises.slice(0, 3)).toEqual([]);
}

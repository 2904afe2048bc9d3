import { describe, expect, it } from 'vitest';
import {
  CallLostError,
  InvalidArgumentError,
  type RouterUnavailableError,
  SmartRouterError,
} from '../../src/client/index.js';
import { failure, fixture, type Reply } from './scripted-router.js';

async function refused(reply: Reply): Promise<SmartRouterError> {
  const { router, client } = await fixture({ retries: 0, apiKey: 'k-secret' });
  router.queue.push(reply);
  const error = await client.allocate({ callSid: 'CA1' }).catch((thrown: unknown) => thrown);
  if (!(error instanceof SmartRouterError)) throw new Error('expected an error of the client');
  return error;
}

const said = (status: number, code: string, error: string): Reply => ({
  status,
  json: { success: false, error, code },
});

describe('messages', () => {
  it.each(['tried pool:gold, pool:basic', 'tried pool:gold, pool:basic.', 'tried pool:gold, pool:basic. '])(
    'the router’s sentence and the advice are two sentences: %j',
    async (text) => {
      expect((await refused(said(503, 'no_pods', text))).message).toBe(
        'allocate CA1: the router answered 503 no_pods: tried pool:gold, pool:basic. Play a busy message, or try again after the time in retryAfterMs.',
      );
    },
  );

  it('so they are where the router failed', async () => {
    const { message } = await refused(said(503, 'store_unavailable', 'the store does not answer'));
    expect(message).toContain('the store does not answer. Check its log and /ready. (');
  });

  it.each([
    ['really?', ': really? Check the pod name.'],
    ['', ': Check the pod name.'],
  ])('a sentence %j needs no full stop', async (text, end) => {
    expect((await refused(said(404, 'pod_not_found', text))).message).toBe(
      `allocate CA1: the router answered 404 pod_not_found${end}`,
    );
  });

  it('a code without advice leaves the sentence as it is', async () => {
    const { message } = await refused(said(413, 'payload_too_large', 'too large'));
    expect(message).toBe('allocate CA1: the router answered 413 payload_too_large: too large');
  });
});

describe('as JSON', () => {
  const toJson = (error: unknown) => JSON.parse(JSON.stringify({ error })).error;

  it('a refusal keeps its text, code and status, and never has the key', async () => {
    const error = await refused(failure(503, 'no_pods', { 'retry-after': '7' }));
    expect(toJson(error)).toEqual({
      name: 'NoPodsError',
      message: error.message,
      code: 'no_pods',
      status: 503,
      retryAfterMs: 7000,
    });
    expect(JSON.stringify(error)).not.toContain('k-secret');
  });

  it('an outage keeps its reason and the number of requests', async () => {
    const error = (await refused('reset')) as RouterUnavailableError;
    expect(toJson(error)).toEqual({
      name: 'RouterUnavailableError',
      message: error.message,
      code: 'router_unavailable',
      reason: 'network',
      attempts: 1,
      status: null,
      retryAfterMs: null,
    });
    expect(JSON.stringify(error)).not.toContain('k-secret');
  });

  it.each([
    [new InvalidArgumentError('wait is wrong.'), { name: 'InvalidArgumentError', code: 'invalid_argument' }],
    [
      new CallLostError('CA1', 'conflict'),
      { name: 'CallLostError', code: 'call_lost', callSid: 'CA1', reason: 'conflict' },
    ],
  ])('%s keeps its own fields', (error, fields) => {
    expect(toJson(error)).toEqual({ ...fields, message: error.message });
  });
});

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { callSidOf, isFinalStatus, PROVIDERS, type Provider } from '../../../src/http/providers/status.js';

type Case = [Provider, Record<string, string>, boolean];

describe('isFinalStatus', () => {
  it.each<Case>([
    ...['completed', 'busy', 'failed', 'no-answer', 'canceled'].map(
      (s): Case => ['twilio', { CallStatus: s }, true],
    ),
    ...['queued', 'initiated', 'ringing', 'in-progress', 'answered'].map(
      (s): Case => ['twilio', { CallStatus: s }, false],
    ),
    ['twilio', { CallStatus: 'NO_ANSWER' }, true],
    ['twilio', { CallStatus: ' No Answer ' }, true],
    ['twilio', { CallStatus: 'noanswer' }, true],
    ['twilio', { CallStatus: 'Cancelled' }, true],
    ['twilio', { CallStatus: 'something-new' }, false],
    ['twilio', { StreamEvent: 'stream-stopped' }, false],
    ['twilio', { DialCallStatus: 'completed' }, false],
    ['twilio', {}, false],

    ...['completed', 'busy', 'failed', 'timeout', 'no-answer', 'cancel'].map(
      (s): Case => ['plivo', { CallStatus: s }, true],
    ),
    ...['ringing', 'in-progress'].map((s): Case => ['plivo', { CallStatus: s }, false]),
    ['plivo', { Event: 'Hangup' }, true],
    ['plivo', { Event: 'Hangup', CallStatus: 'rejected' }, true],
    ['plivo', { HangupCause: 'NORMAL_CLEARING' }, true],
    ['plivo', { HangupCause: '' }, false],
    ['plivo', { Event: 'Hangup', CallStatus: 'in-progress' }, false],
    ['plivo', { Event: 'StartApp', CallStatus: 'ringing' }, false],
    ['plivo', { Event: 'StopStream' }, false],
    ['plivo', { Event: 'DroppedStream', HangupCause: 'x' }, false],
    ['plivo', { DialStatus: 'completed' }, false],

    ...['completed', 'failed', 'busy', 'no-answer'].map((s): Case => ['exotel', { Status: s }, true]),
    ['exotel', { CallStatus: 'canceled' }, true],
    ['exotel', { EventType: 'terminal' }, true],
    ['exotel', { EventType: 'terminal', Status: 'completed' }, true],
    ['exotel', { CallState: 'terminal', CallStatus: '' }, true],
    ['exotel', { callstatus: 'completed' }, true],
    ['exotel', { EventType: 'answered', Status: 'in-progress' }, false],
    ['exotel', { EventType: 'answered', Status: 'completed' }, false],
    ['exotel', { CallState: 'active', CallStatus: 'completed' }, false],
    ['exotel', { EventType: 'stream-start' }, false],
    ['exotel', { CallType: 'completed' }, false],
    ['exotel', { 'Stream[Status]': 'completed' }, false],
    ['exotel', { Status: 'free' }, false],
  ])('%s %j ends the call: %s', (provider, params, expected) => {
    expect(isFinalStatus(provider, params)).toBe(expected);
  });

  it.each<[Provider, Record<string, string>, string | undefined]>([
    ['twilio', { CallSid: 'CA1' }, 'CA1'],
    ['plivo', { CallUUID: '97ce', CallSid: 'no' }, '97ce'],
    ['exotel', { CallSid: 'e1', callsid: 'no' }, 'e1'],
    ['exotel', { callsid: 'e1' }, 'e1'],
    ['twilio', { CallSid: '' }, undefined],
    ['plivo', { CallSid: 'CA1' }, undefined],
  ])('finds the call id of %s in %j', (provider, params, expected) => {
    expect(callSidOf(provider, params)).toBe(expected);
  });

  it('never throws, for any parameters', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...PROVIDERS),
        fc.dictionary(fc.string(), fc.string()),
        (provider, params) => {
          expect(typeof isFinalStatus(provider, params)).toBe('boolean');
        },
      ),
    );
  });
});

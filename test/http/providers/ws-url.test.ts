import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { loadConfig } from '../../../src/config/config.js';
import { buildWsUrl, defaultCallTemplate, isPathSegment } from '../../../src/http/providers/ws-url.js';

const base = {
  template: loadConfig({ POD_SOURCE: 'static', STATIC_PODS: 'voice-0' }).wsUrlTemplate,
  baseUrl: 'wss://agents.example',
  pod: 'voice-0',
  provider: 'twilio',
  callTemplate: 'order-confirmation',
  flow: 'v2',
};
const path = 'wss://agents.example/ws/pod/voice-0/agent/voice/breeze-buddy';

describe('buildWsUrl', () => {
  it.each([
    ['flow v2', {}, `${path}/twilio/callback/order-confirmation/v2`],
    ['another flow', { flow: 'v1' }, `${path}/twilio/callback/order-confirmation`],
    ['Plivo', { provider: 'plivo' }, `${path}/plivo/callback/order-confirmation/v2`],
    ['a template', { callTemplate: 'abandoned-cart' }, `${path}/twilio/callback/abandoned-cart/v2`],
    [
      'a base with slashes at the end',
      { baseUrl: 'wss://agents.example//' },
      `${path}/twilio/callback/order-confirmation/v2`,
    ],
    [
      'a template that would leave its segment',
      { callTemplate: '../a?b#c' },
      `${path}/twilio/callback/..%2Fa%3Fb%23c/v2`,
    ],
    [
      'a template that reads like a placeholder',
      { callTemplate: '{pod}$&' },
      `${path}/twilio/callback/%7Bpod%7D%24%26/v2`,
    ],
    [
      'a template of one’s own',
      { template: '{base}/{provider}/{pod}/{pod}/{x}' },
      'wss://agents.example/twilio/voice-0/voice-0/{x}',
    ],
  ])('gives the address for %s', (_name, parts, expected) => {
    expect(buildWsUrl({ ...base, ...parts })).toBe(expected);
  });

  it('has a template for every provider, and another one for Exotel', () => {
    expect(['twilio', 'plivo', 'exotel'].map(defaultCallTemplate)).toEqual([
      'order-confirmation',
      'order-confirmation',
      'template',
    ]);
  });

  it('keeps every accepted template in its one segment', () => {
    const text = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.string({ unit: fc.constantFrom(...'./\\%2e?#;') }),
    );
    fc.assert(
      fc.property(text, (callTemplate) => {
        fc.pre(isPathSegment(callTemplate));
        const segments = new URL(buildWsUrl({ ...base, callTemplate })).pathname.split('/');
        expect(segments.slice(0, 8)).toEqual([
          '',
          'ws',
          'pod',
          'voice-0',
          'agent',
          'voice',
          'breeze-buddy',
          'twilio',
        ]);
        expect(segments).toHaveLength(11);
        expect(decodeURIComponent(segments[9] ?? '')).toBe(callTemplate);
      }),
    );
  });

  it.each([['.'], ['..'], ['a\nb'], ['\ud800'], ['x'.repeat(257)], ['🙂'.repeat(257)]])(
    'refuses the template %j',
    (callTemplate) => {
      expect(isPathSegment(callTemplate)).toBe(false);
      expect(() => buildWsUrl({ ...base, callTemplate })).toThrow(/^template must be/);
    },
  );

  it.each(['x', '🙂'])('accepts a template of 256 characters like %s', (character) => {
    expect(isPathSegment(character.repeat(256))).toBe(true);
  });

  it('refuses an empty pod', () => {
    expect(() => buildWsUrl({ ...base, pod: '' })).toThrow(/^pod must be/);
  });
});

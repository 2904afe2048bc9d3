/** Values that a field must refuse: types are not coerced, bounds and characters are checked. */
const sidRule = /^call_sid must be the provider's call id: a string of 1 to 256 characters/;
export const wrongSids: [string, unknown, RegExp][] = [
  ['empty', '', sidRule],
  ['a number', 12, /got 12$/],
  ['true', true, /got true$/],
  ['null', null, /got null$/],
  ['a list', ['CA1'], /got a list$/],
  ['an object', { a: 1 }, /got an object$/],
  ['257 characters', 'x'.repeat(257), sidRule],
  ['with a line break', 'CA\n1', sidRule],
  ['with a NUL', 'CA\u00001', sidRule],
  ['with a C1 control character', 'CA\u00851', sidRule],
  ['half a surrogate pair', 'CA\ud800', /^the body has a \\u escape of a lone surrogate/],
];

/** A correct body and, for each field, values that are not. */
export const wrongFields: [path: string, good: Record<string, unknown>, wrong: Record<string, unknown[]>][] =
  [
    [
      '/allocate',
      { call_sid: 'CA1' },
      {
        merchant_id: [1, '', 'a b', 'x'.repeat(65), null, ['m'], 'a/b'],
        provider: [1, '', 'a\nb', '.', '..', 'x'.repeat(65), null],
        flow: [2, '', '..', {}, null],
        template: [3, '', '..', 'a\u0007', 'x'.repeat(257), [], null],
      },
    ],
    ['/release', { call_sid: 'CA1' }, { fence: ['1', 1.5, 0, -1, true, null, 2 ** 53, [1]] }],
    ['/renew', { call_sid: 'CA1' }, { fence: ['1', 1.5, 0, -1, true, null] }],
    [
      '/pod/gold-1/report',
      { calls: [] },
      {
        calls: ['CA1', null, {}, [1], [''], ['a\nb'], ['x'.repeat(257)], Array(10_001).fill('a')],
        uid: [1, '', null],
        tier: [1, 'a b', null],
        merchant: [1, 'a b', null],
      },
    ],
    [
      '/drain',
      { pod_name: 'gold-1' },
      {
        pod_name: [1, '', 'metadata', 'Gold-1', '-a', 'a_b', 'a/b', 'x'.repeat(254), null],
        uid: [1, '', null],
        wait: [30, '', 'soon', '5', '-5s', '5 s', '25h', '1e3s', null, ['5s']],
      },
    ],
    [
      '/undrain',
      { pod_name: 'gold-1' },
      { pod_name: [1, '', 'metadata', 'UPPER', null], uid: [1, '', null] },
    ],
  ];

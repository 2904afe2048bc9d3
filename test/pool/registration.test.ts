import { describe, expect, it } from 'vitest';
import { staticSource } from '../../src/cluster/pods.js';
import { assignmentOf, wantedPool } from '../../src/pool/registration.js';
import { tiersOf } from './fixture.js';

const tiers = tiersOf({
  tiers: {
    gold: { type: 'exclusive', target: 2 },
    basic: { type: 'shared', target: 3, max_concurrent: 5 },
    vip: { type: 'exclusive', target: 1 },
    acme: { type: 'exclusive', target: 4 },
    side: { type: 'shared', target: 9 },
  },
  default_chain: ['basic', 'gold'],
});
const pod = { name: 'a', uid: '', state: 'ready' as const, mustReport: false };

describe('tier assignment', () => {
  it('fills merchant pools first, then the chain in its order, and its last tier takes the rest', () => {
    expect(assignmentOf(tiers)).toEqual({
      candidates: [
        { pool: 'merchant:acme', target: 4 },
        { pool: 'merchant:vip', target: 1 },
        { pool: 'pool:basic', target: 3 },
        { pool: 'pool:gold', target: 2 },
      ],
      last: 'pool:gold',
    });
  });

  it('a shared tier outside the chain gets only pods that name it', () => {
    expect(assignmentOf(tiers).candidates.map(({ pool }) => pool)).not.toContain('pool:side');
    expect(wantedPool(tiers, { ...pod, tier: 'side' })).toBe('pool:side');
  });

  it.each([
    [{}, undefined],
    [{ tier: 'gold' }, 'pool:gold'],
    [{ tier: 'vip' }, 'merchant:vip'],
    [{ tier: 'nowhere' }, undefined],
    [{ tier: 'constructor' }, undefined],
    [{ merchant: 'vip' }, 'merchant:vip'],
    [{ merchant: 'unknown' }, 'merchant:unknown'],
    [{ tier: 'gold', merchant: 'acme' }, 'merchant:acme'],
  ])('a pod with %o wants %s', (wish, pool) => {
    expect(wantedPool(tiers, { ...pod, ...wish })).toBe(pool);
  });
});

describe('the static source', () => {
  it('lists its pods as ready, always the same, with the pools that they name', async () => {
    const source = staticSource([
      { name: 'a' },
      { name: 'b', tier: 'gold' },
      { name: 'c', merchant: 'acme' },
    ]);
    const { pods } = await source.list(new AbortController().signal);
    expect(pods).toEqual([
      { ...pod, name: 'a' },
      { ...pod, name: 'b', tier: 'gold' },
      { ...pod, name: 'c', merchant: 'acme' },
    ]);
    expect((await source.list(new AbortController().signal)).pods).toEqual(pods);
    expect(source.name).toBe('static');
  });
});

import { describe, expect, it } from 'vitest';
import { ReplyError } from './protocol.js';
import { VirtualValkey } from './valkey.js';

const script = "return {redis.call('TIME'), redis.call('INCR', KEYS[1])}";

describe('Valkey on a virtual clock', () => {
  it('answers within the call, on virtual time, and expires keys', async () => {
    let nowUs = 1_700_000_000_000_000;
    const valkey = await VirtualValkey.start(() => nowUs);
    const connection = valkey.connect();
    expect(connection.execute(['PING'])).toBe('PONG');
    expect(connection.execute(['EVAL', script, 1, 'n'])).toEqual([['1700000000', '0'], 1]);
    nowUs += 1_500_000;
    expect(connection.execute(['EVAL', script, 1, 'n'])).toEqual([['1700000001', '500000'], 2]);
    expect(connection.execute(['SET', 'k', 'v', 'PX', 1000])).toBe('OK');
    nowUs += 999_000;
    valkey.tick();
    expect(connection.execute(['GET', 'k'])).toBe('v');
    nowUs += 2000;
    expect(connection.execute(['GET', 'k'])).toBe(null);
    expect(connection.execute(['NOPE'])).toBeInstanceOf(ReplyError);
    expect(connection.execute(['EVAL', 'return redis.call("NOPE")', 0])).toBeInstanceOf(ReplyError);
  });

  it('returns to a snapshot, without the later changes', async () => {
    const valkey = await VirtualValkey.start(() => 1_700_000_000_000_000);
    const before = valkey.connect();
    before.execute(['SET', 'kept', 'yes']);
    const then = valkey.snapshot();
    const since = valkey.connect();
    for (let i = 0; i < 20_000; i += 1) since.execute(['SET', `lost-${i}`, 'x'.repeat(200)]);
    valkey.restore(then);
    expect(() => before.execute(['PING'])).toThrow('closed');
    expect(() => since.execute(['PING'])).toThrow('closed');
    const after = valkey.connect();
    expect(after.execute(['GET', 'kept'])).toBe('yes');
    expect(after.execute(['DBSIZE'])).toBe(1);
    for (let i = 0; i < 20_000; i += 1) after.execute(['SET', `new-${i}`, 'y'.repeat(300)]);
    expect(after.execute(['GET', 'new-19999'])).toHaveLength(300);
  });

  it('gives the same answers to the same commands, also where it draws lots', async () => {
    const run = async () => {
      let nowUs = 1_700_000_000_000_000;
      const valkey = await VirtualValkey.start(() => nowUs);
      const connection = valkey.connect();
      const answers: unknown[] = [];
      connection.execute(['SADD', 's', ...Array.from({ length: 200 }, (_, i) => `m${i}`)]);
      for (let i = 0; i < 50; i += 1) {
        nowUs += 1000;
        answers.push(connection.execute(['SPOP', 's']), connection.execute(['RANDOMKEY']));
        answers.push(connection.execute(['XADD', 'x', '*', 'i', i]));
      }
      answers.push(connection.execute(['SMEMBERS', 's']));
      return answers;
    };
    expect(await run()).toEqual(await run());
  });
});

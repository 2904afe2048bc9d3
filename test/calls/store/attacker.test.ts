/** Found by attacking the store: a call whose record has run out before anybody swept. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { describeEngines } from '../../support/engines.js';
import { openStore, type TestStore } from '../../support/store.js';

describeEngines('a lost call without a leader', (engine) => {
  let store: TestStore;
  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true });
    await store.register(['a'], 'pool:gold');
  });
  afterEach(() => store.close());

  it('gives its pod back to the next allocate although its record is gone', async () => {
    await store.allocate('C1', ['pool:gold']);
    await store.connection.command('test', (client) => client.del('voice:call:C1'));
    store.advance(900_001);
    expect((await store.allocate('C2', ['pool:gold']))?.podName).toBe('a');
    expect((await store.calls.pod('a')).calls.map(({ callSid }) => callSid)).toEqual(['C2']);
  });
});

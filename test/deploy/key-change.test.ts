/** The change of the API key in the three steps of the README, against routers with the keys of each step. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Engine, engines } from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';

const keys = {
  old: 'the-api-key-of-yesterday',
  new: 'the-api-key-of-tomorrow',
  admin: 'an-operators-own-key',
};
type Key = keyof typeof keys;

describe('changing the API key in three steps', () => {
  let engine: Engine;
  const routers: TestRouter[] = [];
  const start = async (api: Key, admin: Key) => {
    const router = await startTestRouter(engine.url, {
      STATIC_PODS: 'gold-1=gold',
      SMART_ROUTER_API_KEY: keys[api],
      SMART_ROUTER_ADMIN_KEY: keys[admin],
    });
    routers.push(router);
    return router;
  };
  const allocate = async (router: TestRouter, key: Key) => {
    const bearer = { authorization: `Bearer ${keys[key]}` };
    return (await router.post('/allocate', { call_sid: 'CA1' }, bearer)).status;
  };

  beforeAll(async () => {
    const kind = engines.find((one) => one.available() === true);
    if (!kind) throw new Error('no engine can run here');
    engine = await kind.start();
  });
  afterAll(async () => {
    for (const router of routers) await router.stop();
    await engine.stop();
  });

  it('refuses no caller while old and new routers serve side by side; in one step it does', async () => {
    const before = await start('old', 'admin');
    const between = await start('old', 'new');
    const after = await start('new', 'admin');
    // 1: the old key works everywhere. 2: both keys. 3: the new key works everywhere.
    expect([await allocate(before, 'old'), await allocate(between, 'old')]).toEqual([200, 200]);
    expect([await allocate(between, 'new'), await allocate(after, 'new')]).toEqual([200, 200]);
    expect([await allocate(before, 'new'), await allocate(after, 'old')]).toEqual([401, 401]);
  });
});

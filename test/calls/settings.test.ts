/** Reading the configuration of thousands of merchants. */
import { expect, it, onTestFinished } from 'vitest';
import { Settings } from '../../src/calls/settings.js';
import { parseTierConfig } from '../../src/config/tiers.js';
import { silentLogger } from '../../src/observe/log.js';
import { describeEngines } from '../support/engines.js';
import { openStore, testTiers } from '../support/store.js';

const key = 'voice:merchant:config';

describeEngines('settings of many merchants', (engine) => {
  async function open() {
    const { connection, close } = await openStore(engine.url);
    onTestFinished(close);
    const { config: initial } = parseTierConfig(testTiers);
    if (!initial) throw new Error('the test tiers are wrong');
    const settings = new Settings({ connection, log: silentLogger, initial, initialGiven: false });
    const entries = Array.from({ length: 3000 }, (_, i) => [`m${i}`, '{"tier":"basic"}']);
    await engine.redis.hset(key, Object.fromEntries(entries));
    await settings.start();
    return settings;
  }

  it('a refresh parses only changed entries, and resolves only their chains', async () => {
    const settings = await open();
    expect(settings.merchants.size).toBe(3000);
    const before = new Map([...settings.merchants.keys()].map((id) => [id, settings.chainFor(id)]));
    const configs = new Map(settings.merchants);
    await engine.redis.hset(key, 'm7', '{"tier":"gold"}', 'new', '{}');
    await engine.redis.hdel(key, 'm8');
    await settings.refreshOrThrow();
    expect(settings.merchants.size).toBe(3000);
    expect(settings.chainFor('m7').steps).toEqual(['pool:gold', 'pool:basic']);
    expect(settings.chainFor('new').steps).toEqual(['pool:gold', 'pool:basic']);
    expect(settings.chainFor('m8')).toBe(settings.chainFor('unknown'));
    const replaced = [...configs].filter(([id, config]) => settings.merchants.get(id) !== config);
    expect(replaced.map(([id]) => id).sort()).toEqual(['m7', 'm8']);
    const resolved = [...before].filter(([id, chain]) => settings.chainFor(id) !== chain);
    expect(resolved.map(([id]) => id).sort()).toEqual(['m7', 'm8']);
  });

  it('a change of the tiers or of the merchant pools changes every chain', async () => {
    const settings = await open();
    await engine.redis.hset(key, 'own', '{"fallback":["merchant:late"]}');
    await settings.refreshOrThrow();
    expect(settings.chainFor('own').steps).toEqual(['pool:gold', 'pool:basic']);
    await engine.redis.hset('voice:pools', 'merchant:late', 'label');
    await settings.refreshOrThrow();
    expect(settings.chainFor('own').steps).toEqual(['merchant:late']);
    await settings.replaceTiers({ ...testTiers, default_chain: ['basic', 'gold'] }, 'test');
    expect(settings.chainFor('m1').steps).toEqual(['pool:basic', 'pool:gold']);
  });

  it('a refresh during another one sees what was written before it', async () => {
    const settings = await open();
    const first = settings.refreshOrThrow();
    await engine.redis.hset(key, 'm9', '{"tier":"gold"}');
    await Promise.all([settings.refreshOrThrow(), settings.refreshOrThrow(), first]);
    expect(settings.merchants.get('m9')).toEqual({ tier: 'gold' });
  });
});

/** Our own schema: made once, by whoever is first, and by those who may. */
import { expect, it } from 'vitest';
import { createRecordLoop, createRecovery, migrate } from '../../src/records/index.js';
import { applyMigrations } from '../../src/records/migrate.js';
import { migrations } from '../../src/records/migrations.generated.js';
import { describePostgres } from '../support/postgres.js';
import { memoryLog, pagesWorkflow, recovers, startable, statuses, teamTable } from './fixture.js';

describePostgres('migrate', (postgres) => {
  it('from ten connections at once happens once', async () => {
    const pools = Array.from({ length: 10 }, () => postgres.pool({ max: 1 }));
    const applied = await Promise.all(pools.map((pool) => migrate(pool)));
    const names = migrations.map(({ name }) => name);
    expect(applied.filter((one) => one.applied.length > 0)).toEqual([{ applied: names }]);
    expect(await migrate(postgres.pool())).toEqual({ applied: [] });
  });

  it('brings an older schema up to date, leaves a newer one alone, and what fails leaves nothing behind', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    // As the version before last would have left it.
    await pool.query("DELETE FROM smart_router.migrations WHERE set = 'records'");
    const loop = createRecordLoop({ pool, workflows: [pagesWorkflow()], log: memoryLog().log });
    await expect(loop.start()).rejects.toThrow('the schema smart_router is missing');
    const done = (...names: string[]) =>
      pool.query("INSERT INTO smart_router.migrations (set, name) SELECT 'records', unnest($1::text[])", [
        names,
      ]);
    const [first = '', ...others] = migrations.map(({ name }) => name);
    await done(first);
    if (others.length > 0)
      await expect(loop.start()).rejects.toThrow(`is older than this version (${others.join(', ')} to come)`);
    await done(...others, '999_later');
    await loop.start();
    await loop.stop();
    const next = [
      ...migrations,
      { name: '998_more', sql: 'CREATE TABLE smart_router.more (); SELECT 1 / 0' },
    ];
    await expect(applyMigrations(pool, 'records', next)).rejects.toThrow('division by zero');
    expect((await pool.query("SELECT to_regclass('smart_router.more') AS found")).rows).toEqual([
      { found: null },
    ]);
    next[next.length - 1] = { name: '998_more', sql: 'CREATE TABLE smart_router.more ()' };
    expect(await applyMigrations(pool, 'records', next)).toEqual({ applied: ['998_more'] });
    expect(await applyMigrations(pool, 'others', [])).toEqual({ applied: [] });
  });

  it('says who may do it and what to grant where a role may not, and such a role can do everything else', async () => {
    const admin = postgres.pool();
    const role = `team_${postgres.name}`;
    await admin.query(`CREATE ROLE ${role} LOGIN PASSWORD 'secret'`);
    postgres.onEnd(() => admin.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`));
    const url = new URL(postgres.url);
    url.username = role;
    url.password = 'secret';
    const pool = postgres.pool({ connectionString: url.href });
    await expect(migrate(pool)).rejects.toThrow(
      /the schema smart_router cannot be brought up to date: permission denied for database .* GRANT USAGE ON SCHEMA smart_router TO/s,
    );
    await teamTable(admin, 3);
    await expect(migrate(pool)).rejects.toThrow('permission denied for schema smart_router');
    // What the message says, word for word.
    const message = await migrate(pool).then(
      () => '',
      (error: Error) => error.message,
    );
    const grants = message.slice(message.indexOf('GRANT')).replaceAll('<role>', role);
    await admin.query(grants);
    await admin.query(`GRANT SELECT, UPDATE ON pages TO ${role}`);
    expect(await migrate(pool)).toEqual({ applied: [] });
    const loop = startable(postgres, { pool, workflows: [pagesWorkflow()], heartbeat: { every: 50 } });
    expect(await loop.runOnce()).toMatchObject({ completed: 3 });
    await admin.query("UPDATE pages SET status = 'Processing', updated_at = now() - interval '2 h'");
    expect(await recovers(postgres, { pool, workflows: [pagesWorkflow()] }).runOnce()).toMatchObject({
      requeued: 3,
    });
    expect(await statuses(admin)).toEqual({ Queued: 3 });
  });

  it('a recovery without the schema says what to do, and works once it is there', async () => {
    const pool = postgres.pool();
    const recovery = createRecovery({ pool, workflows: [pagesWorkflow()], log: memoryLog().log });
    await expect(recovery.start()).rejects.toThrow('call migrate(pool)');
    await teamTable(pool, 0);
    expect(await recovery.runOnce()).toMatchObject({ requeued: 0 });
  });
});

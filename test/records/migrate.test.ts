/** Our own schema: created once, by a role with the right to do so. */
import { expect, it } from 'vitest';
import { createRecordLoop, createRecovery, migrate } from '../../src/records/index.js';
import { applyMigrations } from '../../src/records/migrate.js';
import { migrations } from '../../src/records/migrations.generated.js';
import { describePostgres } from '../support/postgres.js';
import { memoryLog, pagesWorkflow, recovers, startable, statuses, teamTable } from './fixture.js';

describePostgres('migrate', (postgres) => {
  it('runs once from ten connections', async () => {
    const pools = Array.from({ length: 10 }, () => postgres.pool({ max: 1 }));
    const applied = await Promise.all(pools.map((pool) => migrate(pool)));
    const names = migrations.map(({ name }) => name);
    expect(applied.filter((one) => one.applied.length > 0)).toEqual([{ applied: names }]);
    expect(await migrate(postgres.pool())).toEqual({ applied: [] });
  });

  it('updates an older schema, keeps a newer one, and rolls back on failure', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    // As the version before last would have left it.
    await pool.query("DELETE FROM smart_router.migrations WHERE set = 'records'");
    const loop = createRecordLoop({ pool, workflows: [pagesWorkflow()], log: memoryLog().log });
    await expect(loop.start()).rejects.toThrow('the schema smart_router does not exist');
    const done = (...names: string[]) =>
      pool.query("INSERT INTO smart_router.migrations (set, name) SELECT 'records', unnest($1::text[])", [
        names,
      ]);
    const [first = '', ...others] = migrations.map(({ name }) => name);
    await done(first);
    if (others.length > 0)
      await expect(loop.start()).rejects.toThrow(
        `is older than this version (missing: ${others.join(', ')})`,
      );
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

  it('names the missing rights and the GRANTs, with which the role can do everything else', async () => {
    const admin = postgres.pool();
    const role = `team_${postgres.name}`;
    await admin.query(`CREATE ROLE ${role} LOGIN PASSWORD 'secret'`);
    postgres.onEnd(() => admin.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`));
    const url = new URL(postgres.url);
    url.username = role;
    url.password = 'secret';
    const pool = postgres.pool({ connectionString: url.href });
    await expect(migrate(pool)).rejects.toThrow(
      /cannot migrate the schema smart_router: permission denied for database .* GRANT USAGE ON SCHEMA smart_router TO/s,
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

  it('a recovery without the schema says what to do, and works once the schema exists', async () => {
    const pool = postgres.pool();
    const recovery = createRecovery({ pool, workflows: [pagesWorkflow()], log: memoryLog().log });
    await expect(recovery.start()).rejects.toThrow('call migrate(pool)');
    await teamTable(pool, 0);
    expect(await recovery.runOnce()).toMatchObject({ requeued: 0 });
  });
});

import { existsSync, readdirSync } from 'node:fs';
import { afterEach, expect, it, vi } from 'vitest';
import { isDebian, setupDebian } from '../../scripts/setup-debian.mjs';

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
});

it('prints the command for each missing package without root', async (test) => {
  const elsewhere = 'this is not Debian';
  if (!isDebian()) return test.skip(elsewhere);
  // Nothing can be installed here: `apt-get` is not on this PATH either.
  vi.stubEnv('PATH', '');
  vi.stubEnv('SMART_ROUTER_SETUP', '');
  vi.spyOn(process, 'getuid').mockReturnValue(1000);
  const lines: string[] = [];
  const { installed, missing } = await setupDebian((line) => lines.push(line));
  expect(installed).toEqual([]);
  for (const name of ['redis-server', 'openssl']) {
    const reason = `not installed, and only root may install it: \`sudo apt-get install ${name}\``;
    expect(missing).toContainEqual({ name, reason });
    expect(lines.join('\n')).toMatch(new RegExp(`^Without ${name}, .* will be skipped: not installed`, 'm'));
  }
});

it('finds programs where Debian keeps them off the PATH', async () => {
  vi.stubEnv('PATH', '');
  vi.stubEnv('SMART_ROUTER_SETUP', 'off');
  const { missing } = await setupDebian(() => {});
  const isMissing = (name: string) => missing.some((program) => program.name === name);
  expect(isMissing('redis-server')).toBe(true);
  const versions = existsSync('/usr/lib/postgresql') ? readdirSync('/usr/lib/postgresql') : [];
  const postgres = versions.some((version) => existsSync(`/usr/lib/postgresql/${version}/bin/postgres`));
  expect(isMissing('postgresql')).toBe(!postgres);
  expect(isMissing('pgbouncer')).toBe(!existsSync('/usr/sbin/pgbouncer'));
});

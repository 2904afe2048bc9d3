import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { embedLua, embedSql } from '../../scripts/embed.mjs';

/** Tests import the sources, and those import the Lua and SQL files as generated modules. */
export default function setup(): (() => void) | undefined {
  const root = fileURLToPath(new URL('../..', import.meta.url));
  embedLua(root);
  embedSql(root);
  if (process.platform === 'win32') return undefined;
  // For the data that PostgreSQL servers start with (postgres.ts), which belongs to the user they run as.
  const clusters = mkdtempSync(join(tmpdir(), 'smart-router-clusters-'));
  chmodSync(clusters, 0o711);
  process.env.SMART_ROUTER_TEST_CLUSTERS = clusters;
  return () => rmSync(clusters, { recursive: true, force: true });
}

#!/usr/bin/env node
import { existsSync } from 'node:fs';

const entry = new URL('../dist/cli/index.js', import.meta.url);

try {
  const { run } = await import(entry.href);
  process.exitCode = await run(process.argv.slice(2));
} catch (error) {
  // Only a missing build is explained: a module missing further inside is a broken installation.
  if (error?.code !== 'ERR_MODULE_NOT_FOUND' || existsSync(entry)) throw error;
  console.error('smart-router is not built: run `npm ci` (or `npm run build`) in its folder');
  process.exitCode = 1;
}

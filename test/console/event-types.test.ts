/** The filter of the events page offers exactly the types that the scripts write. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { eventTypes } from '../../console/src/labels.js';

const scripts = fileURLToPath(new URL('../../src/calls/store/lua', import.meta.url));

it('lists every event type that the scripts write', () => {
  const written = new Set<string>();
  for (const name of readdirSync(scripts, { recursive: true, encoding: 'utf8' })) {
    if (!name.endsWith('.lua')) continue;
    const text = readFileSync(join(scripts, name), 'utf8');
    for (const [, type = ''] of text.matchAll(/(?:\b(?:event|note)\(|\bend_wait_of\(sid, |'type', )'(\w+)'/g))
      written.add(type);
  }
  expect([...eventTypes].sort()).toEqual([...written].sort());
});

import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const connections = fileURLToPath(new URL('../../dist/http/connections.js', import.meta.url));

it.each([400, 1024])('the limit of open files is read from the system: %i', (limit) => {
  const script = `const { maxOpenFiles } = await import(${JSON.stringify(connections)}); console.log(maxOpenFiles());`;
  const shown = execFileSync('sh', [
    '-c',
    `ulimit -n ${limit} && exec "$0" "$@"`,
    process.execPath,
    '--input-type=module',
    '-e',
    script,
  ]);
  expect(shown.toString()).toBe(`${limit}\n`);
});

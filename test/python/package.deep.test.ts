/** The package as a user gets it: installed without a network, and its types. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { findOnPath } from '../support/engines.js';
import { pythonClient, pythonMissing } from '../support/python.js';

function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'smart-router-python-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

const run = (file: string, args: string[], cwd: string) =>
  execFileSync(file, args, { cwd, stdio: 'pipe', encoding: 'utf8', env: { PATH: process.env.PATH } });

it('installs into a new environment without a network, and can be imported', {
  timeout: 240_000,
}, (context) => {
  const missing = pythonMissing();
  if (missing !== undefined) return context.skip(missing);
  const folder = temporaryFolder();
  const python = join(folder, 'venv', 'bin', 'python');
  try {
    run('python3', ['-m', 'venv', 'venv'], folder);
  } catch {
    return context.skip('python3 -m venv does not work: install python3-venv');
  }
  run(python, ['-m', 'pip', 'install', '--no-index', '--disable-pip-version-check', pythonClient], folder);
  const program = `
import importlib.metadata, importlib.resources, smart_router
assert importlib.metadata.version("smart-router") == smart_router.__version__
assert "${folder}" in smart_router.__file__
assert importlib.resources.is_resource("smart_router", "py.typed")
print(smart_router.Router("http://router"))`;
  expect(run(python, ['-W', 'ignore', '-c', program], folder)).toContain('<Router http://router:80');
  run(python, ['-m', 'pip', 'check'], folder);
});

it('passes the strict type check of mypy, and so does code that uses it', { timeout: 240_000 }, (context) => {
  if (findOnPath('mypy') === undefined) return context.skip('mypy is not on PATH');
  const folder = temporaryFolder();
  writeFileSync(
    join(folder, 'use.py'),
    `
from typing import Optional
from smart_router import Agent, AsyncAgent, AsyncRouter, CallLostError, Router

def on_lost(call_sid: str, error: CallLostError) -> None: ...

def serve(router: Router) -> Optional[int]:
    call = router.allocate("CA1", merchant_id="acme")
    if not call.fallback:
        pod: str = call.pod_name
        fence: int = call.fence
    with Agent(router, pod_name="p", on_lost=on_lost) as agent:
        with agent.call("CA1", fence=call.fence):
            agent.drain(wait=300)
    return call.fence

async def serve_async(router: AsyncRouter) -> str:
    async with AsyncAgent(router, "p") as agent, agent.call("CA1") as call, router.call("CA2", 1):
        await call.wait_lost()
    return (await router.allocate("CA1")).ws_url
`,
  );
  const args = ['--strict', '--python-version', '3.9', '--cache-dir', join(folder, 'cache')];
  const check = () =>
    execFileSync('mypy', [...args, join(pythonClient, 'smart_router'), 'use.py'], {
      cwd: folder,
      stdio: 'pipe',
      encoding: 'utf8',
      env: { PATH: process.env.PATH, MYPYPATH: pythonClient },
    });
  expect(check()).toContain('Success');
});

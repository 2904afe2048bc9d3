/** Load on a POST route over keep-alive connections: by `wrk` if it is installed, else by plain sockets. */
import { execFile, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { HttpConnection } from './http-connection.js';
import { throughput } from './measure.js';

export interface HttpLoad {
  name: string;
  /** Returns answers per second; every call SID is new. Fails if an answer is not 200. */
  run(url: string, path: string, connections: number, ms: number): Promise<number>;
}

export function httpLoad(): HttpLoad {
  // wrk has no --version that succeeds; it prints its usage and ends with 1.
  const found = spawnSync('wrk', ['--version'], { encoding: 'utf8' }).error === undefined;
  return found ? { name: 'wrk', run: runWrk } : { name: 'sockets of this process', run: runSockets };
}

let run = 0;

const body = (sid: string) => `{"call_sid":"${sid}","merchant_id":"acme","template":"order-confirmation"}`;

async function runWrk(url: string, path: string, connections: number, ms: number): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), 'smart-router-bench-'));
  const script = join(folder, 'load.lua');
  const sid = `CA${String(++run).padStart(8, '0')}' .. string.format('%024d', count) .. '`;
  writeFileSync(
    script,
    `local count = 0
local headers = { ['content-type'] = 'application/json' }
function request()
  count = count + 1
  return wrk.format('POST', '${path}', headers, '${body(sid)}')
end
`,
  );
  try {
    const seconds = Math.max(1, Math.round(ms / 1000));
    const args = ['-t1', `-c${connections}`, `-d${seconds}s`, '-s', script, url];
    const { stdout } = await promisify(execFile)('wrk', args);
    const wrong = /Non-2xx or 3xx responses: (\d+)|Socket errors: (.*)/.exec(stdout);
    if (wrong) throw new Error(`${path}: ${wrong[0]}`);
    const rate = /Requests\/sec:\s+([\d.]+)/.exec(stdout)?.[1];
    if (rate === undefined) throw new Error(`wrk printed no rate:\n${stdout}`);
    return Number(rate);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function runSockets(url: string, path: string, connections: number, ms: number): Promise<number> {
  const { hostname, port } = new URL(url);
  const prefix = `CA${String(++run).padStart(8, '0')}`;
  let count = 0;
  const clients = Array.from({ length: connections }, () => new HttpConnection(hostname, Number(port)));
  try {
    return await throughput(connections, ms, async (caller) => {
      const text = body(prefix + String(++count).padStart(24, '0'));
      const status = await clients[caller]?.post(path, text);
      if (status !== '200') throw new Error(`${path} answered ${status}`);
    });
  } finally {
    for (const client of clients) client.close();
  }
}

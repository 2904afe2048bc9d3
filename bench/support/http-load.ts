/**
 * Calls over keep-alive connections, allocates and releases in equal numbers: by `wrk` if it is installed, else by plain
 * sockets.
 */
import { execFile, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { HttpConnection } from './http-connection.js';
import { throughput } from './measure.js';

export interface HttpLoad {
  name: string;
  /** Every call SID is new. Fails if an answer is not 200. At the end some calls are not released. */
  run(url: string, connections: number, ms: number): Promise<{ requests: number; perSecond: number }>;
}

export function httpLoad(): HttpLoad {
  // wrk has no --version that succeeds; it prints its usage and ends with 1.
  const found = spawnSync('wrk', ['--version'], { encoding: 'utf8' }).error === undefined;
  return found ? { name: 'wrk', run: runWrk } : { name: 'sockets of this process', run: runSockets };
}

let run = 0;

const allocateBody = (sid: string) =>
  `{"call_sid":"${sid}","merchant_id":"acme","template":"order-confirmation"}`;
const releaseBody = (sid: string) => `{"call_sid":"${sid}"}`;

async function runWrk(url: string, connections: number, ms: number) {
  const folder = mkdtempSync(join(tmpdir(), 'smart-router-bench-'));
  const script = join(folder, 'load.lua');
  const sid = `CA${String(++run).padStart(8, '0')}' .. string.format('%024d', number) .. '`;
  // wrk does not tie a request to a connection: a call is released long after its allocate was answered.
  writeFileSync(
    script,
    `local count, behind = 0, ${8 * connections}
local headers = { ['content-type'] = 'application/json' }
function request()
  count = count + 1
  local number = math.floor(count / 2) - behind
  if count % 2 == 1 and number > 0 then
    return wrk.format('POST', '/api/v1/release', headers, '${releaseBody(sid)}')
  end
  number = count % 2 == 0 and count / 2 or count + 1e12
  return wrk.format('POST', '/api/v1/allocate', headers, '${allocateBody(sid)}')
end
`,
  );
  try {
    const seconds = Math.max(1, Math.round(ms / 1000));
    const args = ['-t1', `-c${connections}`, `-d${seconds}s`, '-s', script, url];
    const { stdout } = await promisify(execFile)('wrk', args);
    const wrong = /Non-2xx or 3xx responses: (\d+)|Socket errors: (.*)/.exec(stdout);
    if (wrong) throw new Error(`${url}: ${wrong[0]}`);
    const requests = /(\d+) requests in /.exec(stdout)?.[1];
    const rate = /Requests\/sec:\s+([\d.]+)/.exec(stdout)?.[1];
    if (requests === undefined || rate === undefined) throw new Error(`wrk printed no rate:\n${stdout}`);
    return { requests: Number(requests), perSecond: Number(rate) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function runSockets(url: string, connections: number, ms: number) {
  const { hostname, port } = new URL(url);
  const prefix = `CA${String(++run).padStart(8, '0')}`;
  let count = 0;
  const clients = Array.from({ length: connections }, () => new HttpConnection(hostname, Number(port)));
  const post = async (client: HttpConnection | undefined, path: string, body: string) => {
    const status = await client?.post(path, body);
    if (status !== '200') throw new Error(`${path} answered ${status}`);
  };
  try {
    const pairsPerSecond = await throughput(connections, ms, async (caller) => {
      const sid = prefix + String(++count).padStart(24, '0');
      await post(clients[caller], '/api/v1/allocate', allocateBody(sid));
      await post(clients[caller], '/api/v1/release', releaseBody(sid));
    });
    return { requests: 2 * count, perSecond: 2 * pairsPerSecond };
  } finally {
    for (const client of clients) client.close();
  }
}

// Reads a history file line by line and checks its form. Shares no code with src/.
import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';

/** A file that cannot be judged: one line that says where and why. */
export class UnreadableHistory extends Error {}

const operations = new Set(['allocate', 'release', 'renew', 'report', 'drain', 'undrain']);
const types = new Set(['setup', 'request', 'pod_gone', 'changed', 'fault', 'end']);

/**
 * @param {string} path
 * @param {(line: any) => void} onLine
 */
export async function readHistory(path, onLine) {
  const stream = createReadStream(path);
  let number = 0;
  try {
    for await (const text of createInterface({ input: stream, crlfDelay: Number.POSITIVE_INFINITY })) {
      number += 1;
      if (text === '' && number > 1) continue;
      const line = parse(text, number);
      const problem = problemOf(line, number);
      if (problem) throw new UnreadableHistory(`line ${number}: ${problem}`);
      onLine(line);
    }
  } catch (error) {
    if (error instanceof UnreadableHistory) throw error;
    throw new UnreadableHistory(`cannot read the file: ${/** @type {Error} */ (error).message}`);
  } finally {
    stream.destroy();
  }
  if (number === 0) throw new UnreadableHistory('the file is empty');
}

/**
 * @param {string} text
 * @param {number} number
 */
function parse(text, number) {
  try {
    return JSON.parse(text);
  } catch {
    const shown = text.length > 60 ? `${text.slice(0, 60)}...` : text;
    throw new UnreadableHistory(`line ${number}: not JSON: ${shown}`);
  }
}

/** @param {unknown} value */
const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

/**
 * @param {any} line
 * @param {number} number
 * @returns {string | undefined}
 */
function problemOf(line, number) {
  if (!isObject(line)) return 'not an object';
  if (!types.has(line.type)) return `unknown type ${JSON.stringify(line.type)}`;
  if ((line.type === 'setup') !== (number === 1))
    return number === 1 ? 'the first line must have the type setup' : 'a second setup';
  if (line.type === 'setup') return setupProblem(line);
  if (typeof line.at !== 'number') return 'at must be a number';
  if (line.type === 'request') return requestProblem(line);
  if (line.type === 'pod_gone' && typeof line.pod !== 'string') return 'pod must be a string';
  if (line.type === 'fault' && typeof line.until !== 'number') return 'until must be a number';
  if (line.type === 'changed') return configProblem(line);
  return undefined;
}

/** @param {any} line */
function setupProblem(line) {
  if (!isObject(line.pools)) return 'pools must be an object';
  if (!(line.lease_ms > 0)) return 'lease_ms must be a number above 0';
  for (const name of ['drain_ms', 'report_grace_ms', 'no_show_ms'])
    if (line[name] !== undefined && !(line[name] > 0)) return `${name} must be a number above 0`;
  return configProblem(line);
}

/** @param {any} line */
function configProblem({ pools = {}, merchants = {} }) {
  for (const [name, pool] of Object.entries(/** @type {Record<string, any>} */ (pools))) {
    if (pool?.kind !== 'exclusive' && pool?.kind !== 'shared')
      return `pool ${name}: kind must be exclusive or shared`;
    if (pool.kind === 'shared' && !(pool.max > 0)) return `pool ${name}: max must be a number above 0`;
  }
  for (const [name, merchant] of Object.entries(/** @type {Record<string, any>} */ (merchants)))
    if (merchant?.max_calls !== undefined && !(merchant.max_calls >= 0))
      return `merchant ${name}: max_calls must be a number`;
  return undefined;
}

/** @param {any} line */
function requestProblem({ op, at, done, status, sid, pod, calls, fence, answer }) {
  if (!operations.has(op)) return `unknown op ${JSON.stringify(op)}`;
  if (status === null ? done !== null : typeof status !== 'number' || typeof done !== 'number')
    return 'done and status must be numbers, or both null';
  if (done !== null && done < at) return `done (${done}) is before at (${at})`;
  const isOfPod = op === 'report' || op === 'drain' || op === 'undrain';
  if (isOfPod && typeof pod !== 'string') return `${op} needs pod`;
  if (!isOfPod && typeof sid !== 'string') return `${op} needs sid`;
  if (op === 'report' && !Array.isArray(calls)) return 'report needs calls';
  if (fence !== undefined && typeof fence !== 'number') return 'fence must be a number';
  if (status === 200 && !isObject(answer)) return 'a request with status 200 needs answer';
  if (status === 200 && op === 'allocate') {
    if (typeof answer.pod_name !== 'string') return 'the answer to allocate has no pod_name';
    if (typeof answer.fence !== 'number') return 'the answer to allocate has no fence';
  }
  return undefined;
}

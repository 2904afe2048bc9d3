/**
 * Scripts that were broken on purpose, each in one line, named by its text: a script that changes shape fails loudly
 * instead of leaving a control that breaks nothing.
 */
import type { ScriptName } from '../../src/calls/store/connection.js';
import { scripts } from '../../src/calls/store/scripts.generated.js';
import { type Op, plainRegister } from './model/operations.js';

type Step<K extends Op['op']> = Extract<Op, { op: K }>;
/** Chains. Pods a and b are gold, for one call each; c and d basic, for two; e is the only pod of vip. */
const [basic, gold, vip] = [1, 2, 4];
const fill = (chain: number, ...sids: string[]) => sids.map((sid) => ({ op: 'allocate', sid, chain }) as Op);
/** `askers` has the merchants. */
const ask = (asker: number, ...sids: string[]) =>
  sids.map((sid) => ({ op: 'ask', sid, asker, waits: true }) as Op);
const release = (sid: string, failed = false) =>
  ({ op: 'release', sid, fence: 'none', failed }) as Step<'release'>;
const drain = (pod: string, uid = '') => ({ op: 'drain', pod, waitMs: 0, uid }) as Step<'drain'>;
const undrain = (pod: string, uid = '') => ({ op: 'undrain', pod, uid }) as Op;
/** A new pod of the name `a`. */
const register = (uid: 'u1' | 'u2', runsForMs = 0) => ({ ...plainRegister, pod: 'a', uid, runsForMs }) as Op;
const report = (pod: string, written?: 'now' | 'before', ...sids: string[]) =>
  ({ op: 'report', pod, own: false, sids, uid: '', written }) as Step<'report'>;
const reportEverySecond = (...pods: string[]) => pods.map((pod) => ({ ...report(pod), intervalMs: 1000 }));
const failures = (chain: number, how: 'short' | 'refused') => ({ op: 'failures', chain, how }) as Op;
/** Puts a pod into the available set by hand. */
const putBack = (pod: string) => ({ op: 'tamper', how: 'put', pod, sid: 'C1' }) as Step<'tamper'>;
const advance = (ms: number) => ({ op: 'advance', ms }) as Op;
const serve = { op: 'serve', changed: undefined, chain: 0, priority: 0 } as Op;
const failover = { op: 'failover' } as Op;
const limitOne = { op: 'limit', merchant: 'one', max: 1 } as Op;
/** Both gold pods have a call, and C3 waits for one of them. */
const c3Waits = [...fill(gold, 'C1', 'C2'), ...ask(2, 'C3')];

export interface BrokenScript {
  broken: string;
  /** The simulation finds it within a few seeds. The model finds the others, with operations that no fault causes. */
  isSeenInSimulation?: true;
  script: ScriptName;
  line: string;
  becomes: string;
  /**
   * Reveals the defect every time: SPOP takes a random pod, so nothing here depends on which pod a call gets. A run then
   * sweeps all pools, and again one lease later.
   */
  ops: readonly Op[];
}

export const brokenScripts: readonly BrokenScript[] = [
  {
    broken: 'release takes any fence',
    isSeenInSimulation: true,
    script: 'release',
    line: "if ARGV[3] ~= '' and record[2] ~= ARGV[3] then",
    becomes: 'if false then',
    ops: [...fill(vip, 'C1'), { ...release('C1'), fence: 'stale' }],
  },
  {
    broken: 'renew takes any fence',
    script: 'renew',
    line: "if ARGV[3] ~= '' and record[2] ~= ARGV[3] then",
    becomes: 'if false then',
    ops: [...fill(vip, 'C1'), { op: 'renew', sid: 'C1', fence: 'stale' }],
  },
  {
    broken: 'release frees a pod that has calls left',
    isSeenInSimulation: true,
    script: 'release',
    line: "local load = call('ZCARD', calls_key)",
    becomes: 'local load = 0',
    ops: [...fill(basic, 'C1', 'C2', 'C3', 'C4'), release('C1')],
  },
  {
    broken: 'a released call leaves its record',
    isSeenInSimulation: true,
    script: 'release',
    line: "call('DEL', record_key, P .. 'lease:' .. pod)",
    becomes: "call('DEL', P .. 'lease:' .. pod)",
    ops: [...fill(gold, 'C1'), release('C1')],
  },
  {
    broken: 'the tombstone of a released call is over at once',
    script: 'release',
    line: "string.format('%.0f', now + grace)",
    becomes: "string.format('%.0f', now)",
    ops: [...fill(gold, 'C1'), release('C1')],
  },
  {
    broken: 'drain leaves the pod in available',
    isSeenInSimulation: true,
    script: 'drain',
    line: 'local _, load = settle(pod)',
    becomes: 'local load = load_of(pod)',
    ops: [drain('a')],
  },
  {
    broken: 'a drain for a pod that was replaced drains its successor',
    script: 'drain',
    line: "if known and known ~= '' and known ~= uid then return { 'pod_replaced' } end",
    becomes: '',
    ops: [register('u1'), drain('a', 'u2')],
  },
  {
    broken: 'an undrain for a pod that was replaced ends the drain of its successor',
    script: 'undrain',
    line: "if known and known ~= '' and known ~= uid then return { 'pod_replaced' } end",
    becomes: '',
    ops: [register('u1'), drain('a'), undrain('a', 'u2')],
  },
  {
    broken: 'a drain with the uid of a pod stays with its successor',
    script: 'drain',
    line: "if uid == '' then",
    becomes: 'if true then',
    ops: [register('u1'), drain('a', 'u1'), register('u2', 1000)],
  },
  {
    broken: 'drain shortens an earlier mark',
    script: 'drain',
    line: 'math.max(now + tonumber(ARGV[3]), before and deadline_of(before) or 0)',
    becomes: 'now + tonumber(ARGV[3])',
    ops: [{ ...drain('a'), waitMs: 600_000 }, drain('a')],
  },
  {
    broken: 'allocate ignores the load of exclusive pods',
    script: 'allocate',
    line: "local busy = not truth or redis.pcall('ZCARD', P .. 'pod:calls:' .. pod) ~= 0",
    becomes: 'local busy = false',
    ops: [...fill(gold, 'C1', 'C2'), putBack('a'), ...fill(gold, 'C3')],
  },
  {
    broken: 'allocate ignores the load of shared pods',
    script: 'allocate',
    line: 'not block and load < max then return',
    becomes: 'not block then return',
    ops: [...fill(basic, 'C1', 'C2', 'C3', 'C4'), { ...putBack('c'), how: 'score' }, ...fill(basic, 'C5')],
  },
  {
    broken: 'allocate ignores drain and suspension of exclusive pods',
    script: 'allocate',
    line: 'or block_of(truth[2], truth[3]) then',
    becomes: 'then',
    ops: [drain('a'), drain('b'), putBack('a'), ...fill(gold, 'C1')],
  },
  {
    broken: 'allocate ignores drain and suspension of other pods',
    script: 'allocate',
    line: 'not block and load < max then return',
    becomes: 'load < max then return',
    ops: [drain('e'), putBack('e'), ...fill(vip, 'C1')],
  },
  {
    broken: 'allocate is not idempotent',
    isSeenInSimulation: true,
    script: 'allocate',
    line: 'if owner then',
    becomes: 'if false then',
    ops: fill(gold, 'C1', 'C1'),
  },
  {
    broken: 'allocate never looks for expired leases',
    script: 'allocate',
    line: "'-inf', digits(leases_end()), 'LIMIT', 0, 50)",
    becomes: "'-inf', 0, 'LIMIT', 0, 50)",
    ops: [...fill(gold, 'C1', 'C2'), advance(900_000), ...fill(gold, 'C3')],
  },
  {
    broken: 'fences stand still',
    isSeenInSimulation: true,
    script: 'allocate',
    line: 'local fence, before = us,',
    becomes: "local fence, before = '1',",
    ops: [...fill(gold, 'C1'), advance(1), ...fill(gold, 'C2')],
  },
  {
    broken: 'sweep ends live calls',
    isSeenInSimulation: true,
    script: 'sweep',
    line: 'tonumber(entries[i + 1]) <= leases_end()',
    becomes: 'true',
    ops: fill(gold, 'C1'),
  },
  {
    broken: 'sweep keeps calls past their lease',
    isSeenInSimulation: true,
    script: 'sweep',
    line: 'tonumber(entries[i + 1]) <= leases_end()',
    becomes: 'false',
    ops: fill(gold, 'C1'),
  },
  {
    broken: 'sweep puts shared pods back with score 0',
    isSeenInSimulation: true,
    script: 'sweep',
    line: "write_or_skip('ZADD', available_key(pool), load, pod)",
    becomes: "call('ZADD', available_key(pool), 0, pod)",
    ops: fill(basic, 'C1'),
  },
  {
    broken: 'undrain puts shared pods back with score 0',
    isSeenInSimulation: true,
    script: 'undrain',
    line: "write_or_skip('ZADD', available_key(pool), load, pod)",
    becomes: "call('ZADD', available_key(pool), 0, pod)",
    ops: [...fill(basic, 'C1', 'C2'), drain('c'), undrain('c')],
  },
  {
    broken: 'sweep obeys an older leader',
    script: 'sweep',
    line: 'if epoch < stored then return true end',
    becomes: '',
    ops: [{ op: 'old leader', write: 'sweep', pod: 'a' }],
  },
  {
    broken: 'silence blocks more than half of a pool',
    script: 'blockSilent',
    line: 'room_in(pool) > 0',
    becomes: 'room_in(pool)',
    ops: [...reportEverySecond('a', 'b'), { op: 'silence', pod: 'c', ms: 15_000 }],
  },
  {
    broken: 'failed connections set back more than half of a pool',
    script: 'release',
    line: "if not cooling or #cooling >= math.floor(call('SCARD', P .. pool .. ':assigned') / 2) then",
    becomes: 'if not cooling then',
    ops: [failures(vip, 'refused')],
  },
  {
    broken: 'short calls set a pod back whose pool has short calls too',
    script: 'release',
    line: 'return good > bad',
    becomes: 'return true',
    ops: [drain('b'), failures(gold, 'short')],
  },
  {
    broken: 'a call that its pod has reported counts as short',
    script: 'release',
    line: 'age < 5000 and not record[3]) then',
    becomes: 'age < 5000) then',
    ops: [
      drain('b'),
      failures(gold, 'refused'),
      ...fill(gold, 'C1'),
      report('a', undefined, 'C1'),
      release('C1'),
    ],
  },
  {
    broken: 'a call is refused while a pod that was set back is free',
    script: 'allocate',
    line: 'if is_free then return',
    becomes: 'if false then return',
    ops: [drain('b'), failures(gold, 'refused')],
  },
  {
    broken: 'silence counts while the store accepted no reports',
    script: 'blockSilent',
    line: 'latest - since >= due[i + 1] - last and',
    becomes: '',
    ops: [...reportEverySecond('a'), advance(20_000), report('c'), { op: 'silence', pod: 'c', ms: 1000 }],
  },
  {
    broken: 'a report leaves its pod blocked',
    script: 'report',
    line: "elseif waits then\n    call('DEL', suspension)",
    becomes: 'elseif waits then',
    ops: [report('a'), failover, report('a', 'now')],
  },
  ...(['register', 'remove', 'suspend', 'blockSilent'] as const).map((script) => ({
    broken: `${script} obeys an older leader`,
    script,
    line: 'if epoch < stored then return true end',
    becomes: '',
    ops: [{ op: 'old leader', write: script === 'blockSilent' ? 'silence' : script, pod: 'a' } as Op],
  })),
  {
    broken: 'report adopts beyond the capacity',
    isSeenInSimulation: true,
    script: 'report',
    line: 'if (own[sid] or load < (kind and max or 1)) and',
    becomes: 'if',
    ops: [report('a', undefined, 'C1', 'C2')],
  },
  {
    broken: 'report adopts calls that have ended',
    script: 'report',
    line: ' and (waited[sid] or not over[sid]) then',
    becomes: ' then',
    ops: [...fill(gold, 'C1'), release('C1'), report('a', undefined, 'C1')],
  },
  {
    broken: 'report ends missing calls at once',
    isSeenInSimulation: true,
    script: 'report',
    line: 'if is_lost or now >= since + grace then',
    becomes: 'if true then',
    ops: [...fill(vip, 'C1'), report('e')],
  },
  {
    broken: 'remove forgets the draining mark',
    script: 'remove',
    line: "call('DEL', P .. 'pod:draining:' .. pod)",
    becomes: 'local _ = nil',
    ops: [drain('a'), { op: 'remove', pod: 'a' }],
  },
  {
    broken: 'register moves a pod with more calls than the pool allows',
    script: 'register',
    line: 'if load_of(name) > (kind and max or 1) then',
    becomes: 'if false then',
    ops: [...fill(basic, 'C1', 'C2', 'C3', 'C4'), { ...plainRegister, pod: 'c', pool: 'pool:gold' }],
  },
  {
    broken: 'a restarted container keeps its calls',
    script: 'register',
    line: ' or restarts and pod.restarts and pod.restarts > (tonumber(restarts) or pod.restarts)',
    becomes: '',
    ops: [...fill(vip, 'C1'), { ...plainRegister, pod: 'e', restarts: 1 }],
  },
  {
    broken: 'a container that has ended keeps its calls',
    script: 'register',
    line: 'local ended = pod.ended or',
    becomes: 'local ended =',
    ops: [...fill(vip, 'C1'), { ...plainRegister, pod: 'e', ended: true }],
  },
  {
    broken: 'an idle pod that is kept is removed',
    script: 'register',
    line: 'pod.idle_stays and current and not ended',
    becomes: 'false',
    ops: [{ ...plainRegister, pod: 'a', idleGoes: true, idleStays: true }],
  },
  {
    broken: 'an idle pod is kept although its container has ended',
    script: 'register',
    line: 'pod.idle_stays and current and not ended',
    becomes: 'pod.idle_stays and current',
    ops: [{ ...plainRegister, pod: 'a', idleGoes: true, idleStays: true, ended: true }],
  },
  {
    broken: 'a restart ends the calls of the new container too',
    script: 'register',
    line: "(not before or begins(known[2] or '', known[3], known[4]) < before) and",
    becomes: '',
    ops: [...fill(vip, 'C1'), { ...plainRegister, pod: 'e', restarts: 1, runsForMs: 1000 }],
  },
  {
    broken: 'a restart ends a call that was picked up after it',
    script: 'register',
    line: "waited and iso(math.floor((tonumber(fence) or 0) / 1000)) or ''",
    becomes: "''",
    ops: [
      ...[drain('b'), ...fill(gold, 'C1'), ...ask(2, 'C3'), release('C1'), advance(2000), ...ask(2, 'C3')],
      { ...plainRegister, pod: 'a', restarts: 1, runsForMs: 1000 },
    ],
  },
  {
    broken: 'a replaced pod ends the calls of its successor too',
    script: 'register',
    line: "'replaced by a pod of the same name', pod.started_at)",
    becomes: "'replaced by a pod of the same name')",
    ops: [register('u1'), ...fill(gold, 'C1', 'C2'), register('u2', 1000)],
  },
  {
    broken: 'a replaced pod leaves its drain to its successor',
    script: 'register',
    line: 'if drained_at and drained_at >= since then',
    becomes: 'if drained_at then',
    ops: [register('u1'), drain('a'), advance(1000), register('u2')],
  },
  {
    broken: 'a replaced pod takes the drain of its successor with it',
    script: 'register',
    line: 'if drained_at and drained_at >= since then',
    becomes: 'if false then',
    ops: [register('u1'), drain('a'), register('u2', 1000)],
  },
  {
    broken: 'an idle pod that is not ready goes although it drains',
    script: 'register',
    line: "load_of(name) + call('EXISTS', P .. 'pod:draining:' .. name) == 0",
    becomes: 'load_of(name) == 0',
    ops: [drain('a'), { ...plainRegister, pod: 'a', idleGoes: true }],
  },
  {
    broken: 'a pod that is not ready goes although it has a call',
    isSeenInSimulation: true,
    script: 'register',
    line: "load_of(name) + call('EXISTS', P .. 'pod:draining:' .. name) == 0",
    becomes: "call('EXISTS', P .. 'pod:draining:' .. name) == 0",
    ops: [...fill(vip, 'C1'), { ...plainRegister, pod: 'e', idleGoes: true }],
  },
  {
    broken: 'a held pod that is registered again stays held',
    script: 'register',
    line: 'release_hold(name)',
    becomes: '',
    ops: [
      { op: 'suspend', pod: 'a', reason: 'unconfirmed' },
      { ...plainRegister, pod: 'a' },
    ],
  },
  {
    broken: 'a removed pod stays held',
    script: 'remove',
    line: "write_or_skip('SREM', P .. 'removals:held', pod)",
    becomes: '',
    ops: [
      { op: 'suspend', pod: 'a', reason: 'unconfirmed' },
      { op: 'remove', pod: 'a' },
    ],
  },
  {
    broken: 'a change of type leaves the keys as they were',
    script: 'setTiers',
    line: 'if rebuild then',
    becomes: 'if false then',
    ops: [{ op: 'tiers', config: 3 }],
  },
  {
    broken: 'a pool becomes exclusive although a pod of it has two calls',
    script: 'setTiers',
    line: 'if busy > 0 then',
    becomes: 'if false then',
    ops: [...fill(basic, 'C1', 'C2', 'C3', 'C4'), { op: 'tiers', config: 4 }],
  },
  {
    broken: 'a tier that enters the chain leaves its pods behind',
    script: 'setTiers',
    line: 'if step.from ~= step.pool then',
    becomes: 'if false then',
    ops: [{ op: 'tiers', config: 5 }],
  },
  {
    broken: 'a release does not hand over its pod',
    isSeenInSimulation: true,
    script: 'release',
    line: "load = hand_over(pod, pool, 1, 0, fence, 'released_at', released_at, 'failures', failures)",
    becomes: '',
    ops: [...c3Waits, release('C1')],
  },
  {
    broken: 'a release does not hand over a place of its shared pod',
    script: 'release',
    line: 'place(pod, pool, kind, load, block, hands_over, fence, unpack(shown))',
    becomes: 'place(pod, pool, kind, load, block, false)',
    ops: [...fill(basic, 'C1', 'C2', 'C3', 'C4'), ...ask(3, 'C5'), release('C1')],
  },
  {
    broken: 'a pod that registers is not handed over',
    script: 'register',
    line: 'load = hand_over(pod, pool, max, load, ...)',
    becomes: '',
    ops: [...c3Waits, { ...plainRegister, pod: 'c', pool: 'pool:gold' }],
  },
  {
    broken: 'the last call of a merchant is served first',
    isSeenInSimulation: true,
    script: 'allocate',
    line: "call('ZADD', P .. 'waiting:calls:' .. queue, fence, sid)",
    becomes: "call('ZADD', P .. 'waiting:calls:' .. queue, '-' .. fence, sid)",
    ops: [...c3Waits, ...ask(2, 'C4')],
  },
  {
    broken: 'a limit does not count the calls that were handed over',
    script: 'release',
    line: "write_or_skip('SADD', P .. 'limits:' .. merchant, sid)",
    becomes: '',
    ops: [...fill(gold, 'C1', 'C2'), limitOne, ...ask(2, 'C3'), release('C1')],
  },
  {
    broken: 'allocate ignores the limit of a merchant',
    isSeenInSimulation: true,
    script: 'allocate',
    line: 'not has_room(ARGV[3], limit, ARGV[7])',
    becomes: 'false',
    ops: [limitOne, ...ask(2, 'C1', 'C2')],
  },
  {
    broken: 'a hand-over from the shared queue ignores the limit of a merchant',
    script: 'release',
    line: "if queue == '' and is_at_limit(merchant, limit) then",
    becomes: 'if false then',
    ops: [
      ...ask(2, 'C1'),
      ...fill(gold, 'C2'),
      ...fill(basic, 'C3', 'C4', 'C5', 'C6'),
      ...ask(1, 'C7'),
      limitOne,
      release('C2'),
    ],
  },
  {
    broken: 'a call that got a pod stays in its queue',
    isSeenInSimulation: true,
    script: 'release',
    line: 'dequeue(sid, queue)\n  list_queue(queue, false, left)',
    becomes: 'list_queue(queue, false, left)',
    ops: [...c3Waits, release('C1')],
  },
  {
    broken: 'a waiting call keeps a pod',
    script: 'allocate',
    line: "'hold', 'waiting',",
    becomes: "'hold', 'waiting', 'pod_name', 'a',",
    ops: c3Waits,
  },
  {
    broken: 'a queue keeps a call whose wait has ended',
    script: 'serveWaiting',
    line: "dequeue(sid, queue)\n  list_queue(queue)\n  call('DEL'",
    becomes: "call('DEL'",
    ops: [...c3Waits, advance(60_000), serve],
  },
  {
    broken: 'a queue ignores its priority',
    script: 'allocate',
    line: "'priority', hold.priority",
    becomes: "'priority', 0",
    ops: [
      drain('a'),
      drain('b'),
      drain('d'),
      ...fill(basic, 'C1', 'C2'),
      ...ask(4, 'C3'),
      ...ask(3, 'C4'),
      release('C1'),
    ],
  },
  {
    broken: 'a queue ignores its weight',
    script: 'release',
    line: 'tag + CALL_COST / weight',
    becomes: 'tag + CALL_COST',
    ops: [...c3Waits, ...ask(2, 'C4'), release('C1')],
  },
  {
    broken: 'the queue of a merchant below its limit is not listed again',
    script: 'release',
    line: 'if hands_over then list_queue(merchant, true) end',
    becomes: '',
    ops: [limitOne, ...ask(2, 'C1', 'C2'), release('C1')],
  },
  {
    broken: 'an empty queue stays listed',
    script: 'serveWaiting',
    line: "unlist_queue(queue, chain)\n    write_or_skip('SREM'",
    becomes: "write_or_skip('SREM'",
    ops: [...c3Waits, advance(60_000), serve],
  },
  {
    broken: 'a removed pod serves no merchant that is below its limit again',
    script: 'remove',
    line: 'serve_freed()\nreturn results',
    becomes: 'return results',
    ops: [drain('b'), limitOne, ...ask(2, 'C1'), undrain('b'), ...ask(2, 'C2'), { op: 'remove', pod: 'a' }],
  },
  {
    broken: 'an abandoned call stays in its queue',
    script: 'serveWaiting',
    line: "end_wait_of(sid, 'wait_abandoned', 'not asked for')",
    becomes: '',
    ops: [...c3Waits, advance(15_000), serve],
  },
  {
    broken: 'a call gets a pod after its wait has expired',
    script: 'release',
    line: "elseif (tonumber(known[3] or '') or 0) <= now then",
    becomes: 'elseif false then',
    ops: [...c3Waits, advance(60_000), release('C1')],
  },
  {
    broken: 'a waiting call that asks without waiting stays in its queue',
    script: 'allocate',
    line: "end_wait_of(sid, 'wait_abandoned', 'asked without waiting')",
    becomes: '',
    ops: [...c3Waits, ...fill(basic, 'C3')],
  },
  {
    broken: 'a waiting call that was released is queued again',
    script: 'release',
    line: "call('SET', P .. 'waiting:released:' .. sid, digits(now + grace), 'PX', grace)",
    becomes: '',
    ops: [...c3Waits, release('C3'), ...ask(2, 'C3')],
  },
  {
    broken: 'a late release ends the wait of a call',
    script: 'release',
    line: "if ARGV[3] ~= '' then return { 'stale_fence', '' } end",
    becomes: '',
    ops: [...c3Waits, { ...release('C3'), fence: 'stale' }],
  },
  {
    broken: 'a pod that is set back goes to a new call before those that wait',
    script: 'allocate',
    line: 'pod, pool, status = take_last(chain, kinds)',
    becomes: 'pod, pool, status = take_set_back(chain, kinds)',
    ops: [
      failures(gold, 'refused'),
      ...fill(gold, 'C1', 'C2'),
      ...ask(2, 'C3'),
      release('C2', true),
      ...fill(gold, 'C4'),
    ],
  },
  {
    broken: 'a report written before a failover unblocks its pod',
    script: 'report',
    line: 'written and written >= tonumber(marked) or',
    becomes: 'written or',
    ops: [report('a'), failover, report('a', 'before')],
  },
  {
    broken: 'the first report of an unknown time unblocks its pod after a failover',
    script: 'report',
    line: "not written and seen ~= ''",
    becomes: 'not written',
    ops: [report('a'), failover, report('a')],
  },
  {
    broken: 'readiness unblocks a pod that must report after a failover',
    script: 'register',
    line: "if pod.suspended == '' and call('HEXISTS', P .. 'pod:' .. name, 'must_report') == 1 then",
    becomes: 'if false then',
    ops: [
      ...[report('a'), failover, { op: 'suspend', pod: 'a', reason: 'not_ready' } as Op],
      { ...plainRegister, pod: 'a' },
    ],
  },
  {
    broken: 'the second router blocks the pods again after a failover',
    script: 'stampAlive',
    line: 'if id and id ~= known then',
    becomes: 'if id then',
    ops: [report('a'), failover],
  },
  {
    broken: 'a failover leaves pods that must report in the available set',
    script: 'stampAlive',
    line: "'awaiting_report') end\n  settle(pod)",
    becomes: "'awaiting_report') end",
    ops: [report('a'), failover],
  },
  {
    broken: 'the first report without a call ends it after a failover',
    script: 'report',
    line: 'return is_full or first >= generation_began() and as_of > first',
    becomes: 'return true',
    ops: [report('a', undefined, 'C1'), advance(1), failover, report('a', 'now')],
  },
];

/** The whole text, broken. Parts that several ways include stand in a script several times: broken in all of them. */
export function brokenText({
  script,
  line,
  becomes,
}: Pick<BrokenScript, 'script' | 'line' | 'becomes'>): string {
  const whole: string = scripts[script];
  if (!whole.includes(line)) throw new Error(`${script} does not have this: ${line}`);
  return whole.replaceAll(line, () => becomes);
}

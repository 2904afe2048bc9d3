/**
 * The voice agents, which are the truth: a call is where an agent serves it. And the pods they run in, as the cluster
 * reports them.
 */
import type { KnownCall } from './history.js';
import type { World } from './world.js';

const podCount = 6;
/** As our own client does it: a little earlier each time, and a failed one is repeated soon. */
const reportEveryMs = 10_000;
/** Four of the six agents; two of those take calls after a loss only once they have reported. */
const hasClient = (name: string) => !/[25]$/.test(name);
const isReportRequired = (name: string) => /[03]$/.test(name);
const firstReportLateMs = 20_000;

export interface Agent {
  name: string;
  uid: string;
  isAlive: boolean;
  /** Of its process: calls of an earlier process are not served here. */
  startedAtMs: number;
  /** It neither reports nor renews nor releases. */
  isSilent: boolean;
  /** With our client it reports; without it, it renews each call. */
  reports: boolean;
  mustReport: boolean;
  serving: Map<string, KnownCall>;
  /** The router's time in the last reply. */
  told?: { atMs: number; heardMs: number };
}

export class Agents {
  readonly all = new Map<string, Agent>();

  constructor(private readonly world: World) {}

  start(): void {
    for (let i = 0; i < podCount; i += 1) this.bear(`agent-${i}`);
  }

  bear(name: string): void {
    const { world } = this;
    const uid = `uid-${world.newBirth()}`;
    const reports = hasClient(name);
    const mustReport = isReportRequired(name);
    const startedAtMs = world.history.nowMs();
    const serving = new Map<string, KnownCall>();
    const agent: Agent = {
      ...{ name, uid, startedAtMs, isAlive: true, isSilent: false, reports, mustReport, serving },
    };
    this.all.set(name, agent);
    const born = { name, uid, restarts: 0, startedAt: this.#iso(), mustReport };
    world.cluster.put({ ...born, state: 'not_ready' });
    world.time.after(2000, () => {
      if (this.all.get(name) === agent && agent.isAlive) world.cluster.put({ ...born, state: 'ready' });
    });
    if (reports) this.#reportLater(agent);
  }

  /** The process and its calls end; the cluster notices a moment later and starts another one. */
  lose(name: string): void {
    const { world } = this;
    const agent = this.all.get(name);
    if (!agent?.isAlive) return;
    agent.isAlive = false;
    this.#endCalls(agent, 'its pod was deleted');
    world.time.after(500, () => {
      world.cluster.put({ name, uid: agent.uid, state: 'gone', mustReport: agent.mustReport });
      world.time.after(3000, () => this.bear(name));
    });
  }

  /** The same pod, another process: its calls have ended. */
  restartContainer(name: string): void {
    const { world } = this;
    const agent = this.all.get(name);
    const pod = world.cluster.pod(name);
    if (!agent?.isAlive || !pod) return;
    this.#endCalls(agent, 'its container restarted');
    agent.startedAtMs = world.history.nowMs();
    const restarts = (pod.restarts ?? 0) + 1;
    world.cluster.put({ ...pod, state: 'not_ready', restarts, startedAt: this.#iso() });
    world.time.after(3000, () => this.setReady(name, true));
  }

  /** Those that were given and have not arrived yet, too. */
  #endCalls({ name, uid, serving }: Agent, why: string): void {
    for (const call of this.world.history.live)
      if (call.pod === name && call.uid === uid) this.world.history.over(call, why);
    serving.clear();
  }

  setReady(name: string, isReady: boolean): void {
    const { cluster } = this.world;
    const pod = cluster.pod(name);
    const agent = this.all.get(name);
    if (pod && agent?.isAlive && pod.state !== 'terminating')
      cluster.put({ ...pod, state: isReady ? 'ready' : 'not_ready' });
  }

  /** As a rolling update does it: drained with patience, then replaced. */
  async roll(name: string): Promise<void> {
    const { world } = this;
    const agent = this.all.get(name);
    const pod = world.cluster.pod(name);
    if (!agent?.isAlive || !pod) return;
    world.cluster.put({ ...pod, state: 'terminating' });
    for (let i = 0; i < 40 && agent.isAlive; i += 1) {
      await world.askAny((calls) => calls.drain(name, 0, { uid: agent.uid })).catch(() => undefined);
      if (agent.serving.size === 0) break;
      await world.wait(3000);
    }
    this.lose(name);
  }

  /** By the cluster's clock it starts only after this moment of the store's: then this was for another one. */
  isBeforeItsPod(name: string, storeMs: number): boolean {
    return storeMs < Date.parse(this.world.cluster.pod(name)?.startedAt ?? '');
  }

  /** It serves a call, and takes no other before it has reported it, even if the store lost its data. */
  isGuarded(call: KnownCall): boolean {
    const agent = this.all.get(call.pod);
    return agent?.mustReport === true && agent.uid === call.uid && agent.serving.get(call.sid) === call;
  }

  hangUp(agent: Agent, sid: string, why: string): void {
    this.world.history.over(agent.serving.get(sid), why);
    agent.serving.delete(sid);
  }

  #reportLater(agent: Agent): void {
    const { time, traffic } = this.world;
    time.after(reportEveryMs * (0.8 + 0.2 * traffic.next()), () => {
      if (!agent.isAlive) return;
      if (!agent.isSilent) void this.#report(agent);
      this.#reportLater(agent);
    });
  }

  async #report(agent: Agent): Promise<void> {
    const { world } = this;
    const { history, store, time, times } = world;
    const sids = [...agent.serving.keys()];
    const { nowMs: sentMs, setBackMs: setBackBefore } = store;
    const { told } = agent;
    const asOfMs = told && Math.floor(told.atMs + time.nowMs - told.heardMs);
    const { atMs: askedAtMs } = history.before();
    // A first report has no time: it applies to the calls at its arrival.
    history.heardFrom(agent.name, sids, asOfMs ?? sentMs + firstReportLateMs);
    try {
      const report = await world.askAny(
        (calls) => calls.report(agent.name, sids, { uid: agent.uid, asOfMs, intervalMs: reportEveryMs }),
        2,
      );
      agent.told = { atMs: report.atMs, heardMs: time.nowMs };
      // The store's clock may have been set back since.
      const setBackMs = store.setBackMs - setBackBefore;
      const leaseUntilMs = Math.min(sentMs, report.atMs) + times.leaseTtlMs - setBackMs;
      for (const sid of report.renewed) history.renewed(sid, leaseUntilMs);
      for (const sid of report.adopted) {
        const call = agent.serving.get(sid);
        history.unknown(call);
        if (call && report.fences[sid] !== undefined) call.fence = report.fences[sid];
        history.renewed(sid, leaseUntilMs);
        history.known(call, askedAtMs);
      }
      // By this very pod, as the leader knows it; of a container that restarted since it may not know yet.
      if ((world.cluster.pod(agent.name)?.restarts ?? 0) === 0)
        for (const sid of report.renewed) {
          const call = agent.serving.get(sid);
          // After a loss it may be an earlier call of the same name that the store remembers.
          if (call?.fence === report.fences[sid]) history.known(call, askedAtMs);
        }
      // It belongs to another pod by now: this one hangs up.
      for (const sid of report.conflicts) {
        history.unknown(agent.serving.get(sid));
        this.hangUp(agent, sid, 'a conflict');
      }
    } catch {
      // The next report comes anyway.
    }
  }

  #iso(): string {
    return new Date(this.world.time.nowMs).toISOString();
  }
}

/**
 * Puts into sentences what happens to routers and agents. It keeps who leads: the Lease names its holder, and a
 * holder that has ended leads nobody, whatever the Lease still says.
 */
import type { Clock } from '../clock.js';
import type { RosterEntry } from './cluster-monitor.js';
import type { Ledger } from './ledger.js';
import { count, inSeconds, type LineKind } from './lines.js';
import type { Ending, Replica } from './routers.js';

interface NarratorOptions {
  clock: Clock;
  ledger: Ledger;
  tell: (kind: LineKind, text: string) => void;
}

export class Narrator {
  readonly #options: NarratorOptions;
  readonly #drained = new Map<string, string>();
  /** Since when nobody leads, and how many calls had begun by then. */
  #leaderless: { after: string; sinceMs: number; calls: number } | undefined;
  #leader: string | undefined;

  constructor(options: NarratorOptions) {
    this.#options = options;
    this.#leaderless = { after: '', sinceMs: options.clock.monotonic(), calls: 0 };
  }

  get leader(): string | undefined {
    return this.#leader;
  }

  routerUp({ name, starts }: Replica): void {
    this.#options.tell('router', `${name} is up${starts > 1 ? ' again' : ''}`);
  }

  routerEnded({ name }: Replica, { asked, code, lastWords }: Ending): void {
    const led = this.#leader === name;
    const how = {
      kill: `was killed${led ? ' while leading' : ''}`,
      stop: 'stopped cleanly',
      itself:
        code === 0
          ? 'ended itself: it could not renew its leadership'
          : `ended with ${code}: ${lastWords ?? 'it said nothing'}`,
    }[asked ?? 'itself'];
    this.#options.tell('router', `${name} ${how}`);
    if (led) this.#nobodyLeads(name);
  }

  /** Empty: the Lease was given back. */
  leaseHolder(holder: string): void {
    const { clock, ledger, tell } = this.#options;
    const before = this.#leader;
    if (holder === '') {
      if (before === undefined) return;
      tell('leader', `${before} gives its leadership back`);
      this.#nobodyLeads(before);
      return;
    }
    this.#leader = holder;
    const gap = this.#leaderless;
    this.#leaderless = undefined;
    const after = gap && inSeconds(clock.monotonic() - gap.sinceMs);
    const meanwhile = gap && count(ledger.began - gap.calls, 'call');
    if (!gap) tell('leader', `${holder} leads`);
    else if (gap.after === '') tell('leader', `${holder} leads, ${after} after the start`);
    else tell('leader', `${holder} leads, ${after} after ${gap.after}; meanwhile ${meanwhile} began`);
  }

  agentDrained(pod: string, calls: number, ms: number): void {
    this.#drained.set(pod, calls === 0 ? '' : `let ${count(calls, 'call')} end in ${inSeconds(ms)} and `);
  }

  agentReady({ name, version, restarts }: RosterEntry): void {
    const drained = this.#drained.get(name);
    this.#drained.delete(name);
    if (drained !== undefined)
      this.#options.tell('agent', `${name} ${drained}was replaced by version ${version}`);
    else if (restarts > 0) this.#options.tell('agent', `${name} runs again`);
  }

  #nobodyLeads(after: string): void {
    const { clock, ledger } = this.#options;
    this.#leader = undefined;
    this.#leaderless ??= { after, sinceMs: clock.monotonic(), calls: ledger.began };
  }
}

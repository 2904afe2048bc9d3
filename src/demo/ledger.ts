/**
 * What became of every call, as its caller heard it: the truth against which the routers are measured. `cut` and
 * `doubled` must stay 0 whatever happens to routers, Redis and the API server, and however agents are replaced.
 */
export class Ledger {
  /** Calls that got an agent. */
  began = 0;
  /** Talked to their end. */
  served = 0;
  /** Their agent crashed: nobody can save those. */
  lost = 0;
  /** Taken from a caller who was still talking, although the agent was only asked to end. */
  cut = 0;
  /** Given to an agent that had all the calls it can take. */
  doubled = 0;
  /** No agent was free: the caller heard a busy tone. */
  busy = 0;
  /** No router answered, or none could reach the store. */
  unanswered = 0;

  get live(): number {
    return this.began - this.served - this.lost - this.cut;
  }
}

/** The simulated callers: they allocate, talk for a while and release, through the client that everybody uses. */
import { type Client, NoPodsError } from '../client/index.js';

interface CallersOptions {
  client: Client;
  /** Runs in the background until the demo ends. */
  later: (afterSeconds: number, work: () => Promise<unknown>) => void;
}

export interface PlacedCall {
  callSid: string;
  podName: string;
  /** Nobody will release this call any more. */
  abandon(): void;
}

export class Callers {
  readonly #options: CallersOptions;
  #count = 100;

  constructor(options: CallersOptions) {
    this.#options = options;
  }

  /** Whether a call is not one of ours. */
  static isGuest(callSid: string): boolean {
    return !/^CA-\d+$/.test(callSid);
  }

  /** Undefined when no pod was free: the caller hears a busy tone. */
  async place(talkSeconds: number, merchantId?: string): Promise<PlacedCall | undefined> {
    const { client, later } = this.#options;
    this.#count += 1;
    try {
      const call = await client.allocate({ callSid: `CA-${this.#count}`, merchantId });
      if (call.fallback) return undefined;
      let abandoned = false;
      later(talkSeconds, async () => abandoned || (await call.release()));
      return {
        callSid: call.callSid,
        podName: call.podName,
        abandon() {
          abandoned = true;
        },
      };
    } catch (error) {
      if (error instanceof NoPodsError) return undefined;
      throw error;
    }
  }
}

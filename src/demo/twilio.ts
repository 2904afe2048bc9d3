/** A simulated Twilio: it asks the webhook of the routers what to do with a call, and does it. */
import { twilioSignature } from '../http/providers/signatures.js';
import type { DemoContext } from './context.js';

interface TwilioOptions extends Pick<DemoContext, 'clock' | 'sleep' | 'signal'> {
  /** Where the routers answer. */
  url: string;
  /** The address that Twilio signs, if it is another one. */
  publicUrl: string | undefined;
  /** Undefined: the routers check no signature. */
  token: string | undefined;
}

const webhook = '/api/v1/twilio';
/** In seconds of the demo. */
const speechSeconds = 1;
const retrySeconds = 0.5;
const attempts = 3;

export class Twilio {
  readonly #options: TwilioOptions;

  constructor(options: TwilioOptions) {
    this.#options = options;
  }

  /**
   * Resolves to the address of the stream and when it was asked for, or to undefined when the answer ends the call. While
   * the call is held, `onHeld` gets what the caller hears.
   */
  async ring(callSid: string, onHeld: (heard: string[]) => void) {
    let path = `${webhook}/allocate`;
    for (;;) {
      const askedAtMs = this.#options.clock.now();
      const twiml = await this.#post(path, { CallSid: callSid, CallStatus: 'in-progress' });
      const stream = /<Stream url="([^"]+)"/.exec(twiml)?.[1];
      if (stream !== undefined) return { url: unescaped(stream), askedAtMs };
      const redirect = /<Redirect[^>]*>([^<]+)</.exec(twiml)?.[1];
      if (redirect === undefined) return undefined;
      const heard = [...twiml.matchAll(/<Say>([^<]+)</g)].map(([, text = '']) => unescaped(text));
      onHeld(heard);
      const pause = Number(/<Pause length="(\d+)"/.exec(twiml)?.[1] ?? 0);
      await this.#options.sleep(heard.length * speechSeconds + pause);
      path = unescaped(redirect.slice(redirect.indexOf(webhook)));
    }
  }

  /** The status callback after the caller has hung up. */
  async completed(callSid: string): Promise<void> {
    await this.#post(`${webhook}/status`, { CallSid: callSid, CallStatus: 'completed' });
  }

  /** A router that dies breaks its connections; the next attempt reaches another one. */
  async #post(path: string, fields: Record<string, string>, attempt = 1): Promise<string> {
    const { url, publicUrl = url, token, sleep, signal } = this.#options;
    const signed = publicUrl.replace(/\/+$/, '') + path;
    const headers =
      token === undefined
        ? undefined
        : { 'x-twilio-signature': twilioSignature(token, signed, Object.entries(fields)) };
    try {
      const body = new URLSearchParams(fields);
      const response = await fetch(url + path, { method: 'POST', ...(headers && { headers }), body, signal });
      if (response.ok) return await response.text();
      throw new Error(`the webhook answered ${response.status}`);
    } catch (error) {
      if (attempt === attempts || signal.aborted) throw error;
      await sleep(retrySeconds);
      return this.#post(path, fields, attempt + 1);
    }
  }
}

const unescaped = (text: string) =>
  text
    .replaceAll('&apos;', "'")
    .replaceAll('&quot;', '"')
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&amp;', '&');

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

export type Twilio = ReturnType<typeof twilioOf>;

export function twilioOf({ url, publicUrl = url, token, clock, sleep, signal }: TwilioOptions) {
  /** A router that dies breaks its connections; the next attempt reaches another one. */
  const post = async (path: string, fields: Record<string, string>, attempt = 1): Promise<string> => {
    const signed = publicUrl.replace(/\/+$/, '') + path;
    const signature = token && twilioSignature(token, signed, Object.entries(fields));
    const headers = signature ? { 'x-twilio-signature': signature } : {};
    try {
      const body = new URLSearchParams(fields);
      const response = await fetch(url + path, { method: 'POST', headers, body, signal });
      if (response.ok) return await response.text();
      throw new Error(`the webhook answered ${response.status}`);
    } catch (error) {
      if (attempt === attempts || signal.aborted) throw error;
      await sleep(retrySeconds);
      return post(path, fields, attempt + 1);
    }
  };

  return {
    /**
     * Resolves to the address of the stream and when it was asked for, or to undefined when the answer ends the call.
     * While the call is held, `onHeld` gets what the caller hears.
     */
    async ring(callSid: string, onHeld: (heard: string[]) => void) {
      let path = `${webhook}/allocate`;
      for (;;) {
        const askedAtMs = clock.now();
        const twiml = await post(path, { CallSid: callSid, CallStatus: 'in-progress' });
        const stream = /<Stream url="([^"]+)"/.exec(twiml)?.[1];
        if (stream !== undefined) return { url: unescaped(stream), askedAtMs };
        const redirect = /<Redirect[^>]*>([^<]+)</.exec(twiml)?.[1];
        if (redirect === undefined) return undefined;
        const heard = [...twiml.matchAll(/<Say>([^<]+)</g)].map(([, text = '']) => unescaped(text));
        onHeld(heard);
        const pause = Number(/<Pause length="(\d+)"/.exec(twiml)?.[1] ?? 0);
        await sleep(heard.length * speechSeconds + pause);
        path = unescaped(redirect.slice(redirect.indexOf(webhook)));
      }
    },

    /** The status callback after the caller has hung up. */
    completed: (callSid: string) => post(`${webhook}/status`, { CallSid: callSid, CallStatus: 'completed' }),
  };
}

const characters: Readonly<Record<string, string>> = { apos: "'", quot: '"', lt: '<', gt: '>', amp: '&' };

const unescaped = (text: string) => text.replace(/&(\w+);/g, (whole, name) => characters[name] ?? whole);

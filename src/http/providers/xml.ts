/** The XML answers to Twilio and Plivo. */

/** Spoken to the caller when no pod is free. */
export const UNAVAILABLE_MESSAGE =
  'We are sorry, all of our agents are busy right now. Please call again in a few minutes.';

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&apos;',
  // As references, because parsers turn the bare characters into spaces (attributes) or newlines (text).
  '\t': '&#9;',
  '\n': '&#10;',
  '\r': '&#13;',
};

/** Escapes text for elements and for attributes in either quotes. Drops characters that XML 1.0 does not allow. */
export function escapeXml(value: string): string {
  return value
    .replace(/[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/gu, '')
    .replace(/[&<>"'\t\n\r]/g, (char) => ESCAPES[char] ?? '');
}

/** Twilio drops the query of a stream URL: everything must be in the path. */
export function twimlStream(url: string): string {
  return `<Response><Connect><Stream url="${escapeXml(url)}"/></Connect></Response>`;
}

export const twimlUnavailable = `<Response><Say>${UNAVAILABLE_MESSAGE}</Say><Hangup/></Response>`;

/** Without `keepCallAlive` Plivo continues with the next element at once, finds none, and hangs up. */
export function plivoStream(url: string): string {
  const attributes = 'bidirectional="true" keepCallAlive="true" contentType="audio/x-mulaw;rate=8000"';
  return `<Response><Stream ${attributes}>${escapeXml(url)}</Stream></Response>`;
}

export const plivoUnavailable = `<Response><Speak>${UNAVAILABLE_MESSAGE}</Speak><Hangup/></Response>`;

/** What a caller hears while the call waits for a pod, and where the provider asks again. */
export interface Held {
  /** The address of this webhook, for the next request. */
  url: string;
  message: string;
  audioUrl: string | undefined;
  /** Spoken before the rest; empty: nothing. */
  announcement: string;
  pauseSeconds: number;
}

interface Verbs {
  say: 'Say' | 'Speak';
  pause: 'Pause' | 'Wait';
}

function heldXml(
  { say, pause }: Verbs,
  { url, message, audioUrl, announcement, pauseSeconds }: Held,
): string {
  const speak = (text: string) => (text === '' ? '' : `<${say}>${escapeXml(text)}</${say}>`);
  const sound =
    audioUrl === undefined
      ? `${speak(message)}<${pause} length="${pauseSeconds}"/>`
      : `<Play>${escapeXml(audioUrl)}</Play>`;
  return `<Response>${speak(announcement)}${sound}<Redirect method="POST">${escapeXml(url)}</Redirect></Response>`;
}

export const twimlHeld = (held: Held): string => heldXml({ say: 'Say', pause: 'Pause' }, held);
export const plivoHeld = (held: Held): string => heldXml({ say: 'Speak', pause: 'Wait' }, held);

/** Connects a caller whose wait is over to another number. */
export function twimlDial(number: string): string {
  return `<Response><Dial>${escapeXml(number)}</Dial></Response>`;
}

export function plivoDial(number: string): string {
  return `<Response><Dial><Number>${escapeXml(number)}</Number></Dial></Response>`;
}

/** What Twilio and Plivo are told to do with a call. Pure strings; the caller sets `text/xml`. */

/** What a caller hears when no pod is free. */
export const UNAVAILABLE_MESSAGE =
  'We are sorry, all of our agents are busy right now. Please call again in a few minutes.';

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&apos;',
  // As references, because a parser turns the bare characters into spaces (attributes) or newlines (text).
  '\t': '&#9;',
  '\n': '&#10;',
  '\r': '&#13;',
};

/** Safe both as text and inside either kind of quotes. Characters that XML 1.0 cannot carry are dropped. */
export function escapeXml(value: string): string {
  return value
    .replace(/[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/gu, '')
    .replace(/[&<>"'\t\n\r]/g, (char) => ESCAPES[char] ?? '');
}

/** Twilio passes no query string of a stream's address on to the server: everything must be in the path. */
export function twimlStream(url: string): string {
  return `<Response><Connect><Stream url="${escapeXml(url)}"/></Connect></Response>`;
}

export function twimlUnavailable(message: string = UNAVAILABLE_MESSAGE): string {
  return `<Response><Say>${escapeXml(message)}</Say><Hangup/></Response>`;
}

/** Without `keepCallAlive` Plivo goes on to the next element at once, finds none, and hangs up. */
export function plivoStream(url: string): string {
  const attributes = 'bidirectional="true" keepCallAlive="true" contentType="audio/x-mulaw;rate=8000"';
  return `<Response><Stream ${attributes}>${escapeXml(url)}</Stream></Response>`;
}

export function plivoUnavailable(message: string = UNAVAILABLE_MESSAGE): string {
  return `<Response><Speak>${escapeXml(message)}</Speak><Hangup/></Response>`;
}

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

/** The words of a provider; `stream` and `number` take escaped text. */
interface Dialect {
  say: 'Say' | 'Speak';
  pause: 'Pause' | 'Wait';
  stream(url: string): string;
  number(number: string): string;
}

function voiceOf({ say, pause, stream, number }: Dialect) {
  const answer = (content: string) => `<Response>${content}</Response>`;
  const speak = (text: string) => (text === '' ? '' : `<${say}>${escapeXml(text)}</${say}>`);
  return {
    stream: (url: string) => answer(stream(escapeXml(url))),
    unavailable: answer(`${speak(UNAVAILABLE_MESSAGE)}<Hangup/>`),
    held: ({ url, message, audioUrl, announcement, pauseSeconds }: Held) => {
      const sound =
        audioUrl === undefined
          ? `${speak(message)}<${pause} length="${pauseSeconds}"/>`
          : `<Play>${escapeXml(audioUrl)}</Play>`;
      return answer(`${speak(announcement)}${sound}<Redirect method="POST">${escapeXml(url)}</Redirect>`);
    },
    /** Connects a caller whose wait is over to another number. */
    dial: (to: string) => answer(`<Dial>${number(escapeXml(to))}</Dial>`),
  };
}

/** Without `keepCallAlive` Plivo continues with the next element at once, finds none, and hangs up. */
const plivoStream = 'bidirectional="true" keepCallAlive="true" contentType="audio/x-mulaw;rate=8000"';

/** Exotel has none: its applet cannot hold a call, and gets 503 and JSON. */
export const voices = {
  twilio: voiceOf({
    say: 'Say',
    pause: 'Pause',
    // Twilio drops the query of a stream URL: everything must be in the path.
    stream: (url) => `<Connect><Stream url="${url}"/></Connect>`,
    number: (number) => number,
  }),
  plivo: voiceOf({
    say: 'Speak',
    pause: 'Wait',
    stream: (url) => `<Stream ${plivoStream}>${url}</Stream>`,
    number: (number) => `<Number>${number}</Number>`,
  }),
};

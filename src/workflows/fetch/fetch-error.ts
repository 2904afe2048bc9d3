/** Why something could not be fetched, in one line, as it is written beside the record. */
export class FetchError extends Error {
  override readonly name = 'FetchError';
}

const longestShown = 300;

/** A URL as a message shows it: whole, or its beginning if it is very long. */
export function shown(url: string): string {
  return url.length <= longestShown ? url : `${url.slice(0, longestShown)}…`;
}

/** What a failed connection, name lookup or TLS handshake means, for somebody who knows no error codes. */
export function reasonOf(error: unknown): string {
  // Tried several addresses at once: each failure is inside, and the first tells enough.
  const first = error instanceof AggregateError ? error.errors[0] : error;
  const { code = '', message = String(first) } = first as { code?: string; message?: string };
  if (code === 'ENOTFOUND' || code === 'EAI_NODATA') return 'there is no such host';
  if (code === 'EAI_AGAIN') return 'the name of the host could not be looked up (no answer)';
  if (code === 'ECONNREFUSED') return 'the connection was refused';
  if (code === 'ECONNRESET' || code === 'EPIPE') return 'the connection broke off';
  if (['ETIMEDOUT', 'EHOSTUNREACH', 'ENETUNREACH'].includes(code)) return 'the host cannot be reached';
  if (code === 'HPE_HEADER_OVERFLOW') return 'the headers of the answer are too long';
  if (code === 'EPROTO') return 'the server does not speak TLS';
  if (code.startsWith('HPE_')) return 'the answer is not HTTP';
  if (/CERT|SELF_SIGNED|UNABLE_TO_VERIFY|TLS|SSL/.test(code))
    return `the TLS connection failed (${oneLine(message)})`;
  return oneLine(message) || code || 'unknown';
}

function oneLine(text: string): string {
  return text.split('\n')[0]?.trim().slice(0, longestShown) ?? '';
}

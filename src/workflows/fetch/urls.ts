/**
 * Accepts URLs that can be fetched: absolute, http or https, without credentials, at most 2,048 characters (the sitemap
 * protocol's limit). Normalises them without a fragment, so that a page is not stored twice.
 */
export const maxUrlLength = 2_048;

export type ReadUrl = { readonly url: URL } | { readonly problem: string };

export function readUrl(text: string, base?: URL): ReadUrl {
  // Before parsing, which takes long for megabytes.
  if (text.length > maxUrlLength * 4) return { problem: `longer than ${maxUrlLength} characters` };
  let url: URL;
  try {
    url = new URL(text, base);
  } catch {
    return { problem: 'not an absolute URL' };
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    return { problem: `${url.protocol}// is neither http nor https` };
  }
  if (url.username !== '' || url.password !== '') return { problem: 'contains a user name or a password' };
  url.hash = '';
  if (url.href.length > maxUrlLength) return { problem: `longer than ${maxUrlLength} characters` };
  return { url };
}

/** Why a fetch failed, in one line: it goes to the error column of the record. */
export class FetchError extends Error {
  override readonly name = 'FetchError';
}

const maxShown = 300;

/** A URL for a message, truncated if it is very long. */
export function shown(url: string): string {
  return url.length <= maxShown ? url : `${url.slice(0, maxShown)}…`;
}

/** Explains a failed connection, name lookup or TLS handshake without error codes. */
export function reasonOf(error: unknown): string {
  // Several addresses were tried: the first failure is enough.
  const first = error instanceof AggregateError ? error.errors[0] : error;
  const { code = '', message = String(first) } = first as { code?: string; message?: string };
  if (code === 'ENOTFOUND' || code === 'EAI_NODATA') return 'no such host';
  if (code === 'EAI_AGAIN') return 'the name of the host could not be resolved (no reply)';
  if (code === 'ECONNREFUSED') return 'the connection was refused';
  if (code === 'ECONNRESET' || code === 'EPIPE') return 'the connection was reset';
  if (['ETIMEDOUT', 'EHOSTUNREACH', 'ENETUNREACH'].includes(code)) return 'the host is unreachable';
  if (code === 'HPE_HEADER_OVERFLOW') return 'the headers of the response are too long';
  if (code === 'EPROTO') return 'the server does not speak TLS';
  if (code.startsWith('HPE_')) return 'the response is not HTTP';
  if (/CERT|SELF_SIGNED|UNABLE_TO_VERIFY|TLS|SSL/.test(code))
    return `the TLS connection failed (${oneLine(message)})`;
  return oneLine(message) || code || 'unknown';
}

function oneLine(text: string): string {
  return text.split('\n')[0]?.trim().slice(0, maxShown) ?? '';
}

/**
 * The address over which a provider computed its signature: the one typed into its console.
 *
 * The path and query of the request are kept byte for byte; decoding and encoding them again would turn `+`
 * into `%20` and break every signature. A path in `PUBLIC_URL` is what a proxy strips before the request comes
 * to us (our routes would not match otherwise), so it is always put back in front.
 */
export interface RequestAddress {
  /** `PUBLIC_URL`; its own query and fragment, if any, are ignored. */
  readonly publicUrl?: string | undefined;
  /** As seen by the server, after `TRUST_PROXY` has had its say. With or without the colon. */
  readonly protocol: string;
  /** Host with its port, as in the Host header. */
  readonly host: string;
  /** The request target as received, query included. */
  readonly originalUrl: string;
}

export function requestUrl({ publicUrl, protocol, host, originalUrl }: RequestAddress): string {
  const base = publicUrl ? publicUrl.replace(/[?#].*$/s, '') : `${protocol.replace(/:$/, '')}://${host}`;
  return base.replace(/\/+$/, '') + pathOf(originalUrl);
}

/** A client may send the whole address as the request target (RFC 9112, absolute-form): only its path counts. */
function pathOf(target: string): string {
  const path = target.startsWith('/') ? target : target.replace(/^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i, '');
  return path.startsWith('/') ? path : `/${path}`;
}

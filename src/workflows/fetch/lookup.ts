/**
 * The last step before a connection: a name becomes addresses, and those that are not public are taken out. Node
 * connects to exactly what this gives it, so a name that resolves differently the next moment (DNS rebinding) gains
 * nothing. An address written in a URL never comes by here; `refuseLiteral` looks at those.
 */
import { type LookupAddress, lookup as systemLookup } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import { notPublic } from './addresses.js';
import { FetchError } from './fetch-error.js';

const remedy = 'set RECORDS_ALLOW_PRIVATE_ADDRESSES=true to allow';

/** All addresses of a name, as `dns.lookup` gives them. */
export type Resolve = (
  hostname: string,
  options: { family?: number; hints?: number; all: true },
  callback: (error: Error | null, addresses: LookupAddress[]) => void,
) => void;

/** All of them, none, or just these. */
export type AllowedPrivate = boolean | readonly string[];

export const systemResolve: Resolve = (hostname, options, callback) =>
  systemLookup(hostname, options, callback);

export function guardedLookup(resolve: Resolve, allowed: AllowedPrivate): LookupFunction {
  return (hostname, { family, hints, all }, callback) => {
    const options = { ...(typeof family === 'number' && { family }), ...(hints !== undefined && { hints }) };
    resolve(hostname, { ...options, all: true }, (error, addresses) => {
      if (error) return callback(error, []);
      const usable = addresses.filter(({ address }) => refusal(address, allowed) === undefined);
      const [first] = usable;
      if (first) return all ? callback(null, usable) : callback(null, first.address, first.family);
      const [refused] = addresses;
      callback(
        refused
          ? new FetchError(
              `refused: ${hostname} is ${refused.address}, ${notPublic(refused.address)} address (${remedy})`,
            )
          : new FetchError(`the host ${hostname} has no address`),
        [],
      );
    });
  };
}

/** Throws if the host of the URL is an address, not a name, and not a public one. */
export function refuseLiteral(url: URL, allowed: AllowedPrivate): void {
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const kind = isIP(host) ? refusal(host, allowed) : undefined;
  if (kind) throw new FetchError(`refused: ${host} is ${kind} address (${remedy})`);
}

function refusal(address: string, allowed: AllowedPrivate): string | undefined {
  return allowed === true || (allowed !== false && allowed.includes(address))
    ? undefined
    : notPublic(address);
}

/**
 * Keeps the fetcher away from addresses that are not public. A sitemap or a page may name any host, and could make this
 * process reach its neighbours: a cloud's metadata service, a database, the router itself.
 *
 * IPv4 is public unless the address is in a special-purpose block (IANA's registry). IPv6 is public only inside
 * 2000::/3, the only range ever assigned, so that an unknown block is refused. Addresses that embed an IPv4 address are
 * judged by it: on a network with DNS64 every IPv4 site looks like 64:ff9b::/96.
 *
 * The check is the last step before a connection: `guardedLookup` resolves a name and drops addresses that are not
 * public. Node connects to exactly what it returns, so a name that resolves differently a moment later (DNS rebinding)
 * gains nothing. Addresses written in a URL do not pass it; `refuseLiteral` checks those.
 */
import { type LookupAddress, lookup as systemLookup } from 'node:dns';
import { BlockList, isIP, type LookupFunction } from 'node:net';
import { FetchError } from './urls.js';

/** Special-purpose blocks, by what an address in them is. */
const blocksByKind: readonly [kind: string, ...blocks: string[]][] = [
  ['an unspecified', '0.0.0.0/8', '::/128'],
  ['a private', '10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', 'fc00::/7', 'fec0::/10'],
  ['a carrier-grade NAT', '100.64.0.0/10'],
  ['a loopback', '127.0.0.0/8', '::1/128'],
  // A public number, but on Azure the host of the machine.
  ['a cloud host', '168.63.129.16/32'],
  ['a link-local', '169.254.0.0/16', 'fe80::/10'],
  ['a documentation', '192.0.2.0/24', '198.51.100.0/24', '203.0.113.0/24', '2001:db8::/32', '3fff::/20'],
  ['a benchmarking', '198.18.0.0/15'],
  ['a multicast', '224.0.0.0/4', 'ff00::/8'],
  // In IPv6, Teredo and the other protocol assignments: tunnels and anycast services, not web servers.
  ['a reserved', '192.0.0.0/24', '192.88.99.0/24', '240.0.0.0/4', '2001::/23'],
];

const lists = blocksByKind.map(
  ([kind, ...blocks]) => [kind, listOf(...blocks, ...blocks.filter(isOfIpv4).flatMap(carried))] as const,
);
/** What is assigned, and the networks of `carried`. */
const publicIpv6 = listOf('2000::/3', '::ffff:0:0/96', '::ffff:0:0:0/96', '64:ff9b::/96');

function isOfIpv4(block: string): boolean {
  return !block.includes(':');
}

/** An IPv4 block inside the IPv6 networks that embed IPv4; `BlockList` itself knows `::ffff:0:0/96`. */
function carried(block: string): string[] {
  const [address = '', bits] = block.split('/');
  const [a = 0, b = 0, c = 0, d = 0] = address.split('.').map(Number);
  const inHex = `2002:${(256 * a + b).toString(16)}:${(256 * c + d).toString(16)}::/${16 + Number(bits)}`;
  return [...['::ffff:0:', '64:ff9b::'].map((prefix) => `${prefix}${address}/${96 + Number(bits)}`), inHex];
}

function listOf(...blocks: string[]): BlockList {
  const list = new BlockList();
  for (const block of blocks) {
    const [address = '', bits] = block.split('/');
    list.addSubnet(address, Number(bits), isOfIpv4(block) ? 'ipv4' : 'ipv6');
  }
  return list;
}

/** Returns `a private`, `a loopback` ...; undefined for a public address. */
export function notPublic(address: string): string | undefined {
  // A zone (`fe80::1%eth0`) names the interface, not the target.
  const [bare = ''] = address.split('%');
  const version = isIP(bare);
  if (version === 0) return 'an unreadable';
  const family = version === 4 ? 'ipv4' : 'ipv6';
  const [kind] = lists.find(([, list]) => list.check(bare, family)) ?? [];
  return kind ?? (version === 4 || publicIpv6.check(bare, family) ? undefined : 'a reserved');
}

const remedy = 'set RECORDS_ALLOW_PRIVATE_ADDRESSES=true to allow';

/** Resolves a name to all its addresses, like `dns.lookup`. */
export type Resolve = (
  hostname: string,
  options: { family?: number; hints?: number; all: true },
  callback: (error: Error | null, addresses: LookupAddress[]) => void,
) => void;

/** All private addresses, none, or only these. */
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

/** Throws if the host of the URL is an address that is not public. */
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

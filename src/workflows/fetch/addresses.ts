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
import { isIP, isIPv4, isIPv6, type LookupFunction } from 'node:net';
import { FetchError } from './fetch-error.js';

interface Block {
  readonly first: bigint;
  readonly prefix: number;
  readonly kind: string;
}

const block = (cidr: string, kind: string): Block => {
  const [address = '', prefix = ''] = cidr.split('/');
  return { first: isIPv4(address) ? ipv4(address) : ipv6(address), prefix: Number(prefix), kind };
};

const ipv4Blocks = [
  block('0.0.0.0/8', 'an unspecified'),
  block('10.0.0.0/8', 'a private'),
  block('100.64.0.0/10', 'a carrier-grade NAT'),
  block('127.0.0.0/8', 'a loopback'),
  // A public number, but on Azure the host of the machine.
  block('168.63.129.16/32', 'a cloud host'),
  block('169.254.0.0/16', 'a link-local'),
  block('172.16.0.0/12', 'a private'),
  block('192.0.0.0/24', 'a reserved'),
  block('192.0.2.0/24', 'a documentation'),
  block('192.88.99.0/24', 'a reserved'),
  block('192.168.0.0/16', 'a private'),
  block('198.18.0.0/15', 'a benchmarking'),
  block('198.51.100.0/24', 'a documentation'),
  block('203.0.113.0/24', 'a documentation'),
  block('224.0.0.0/4', 'a multicast'),
  block('240.0.0.0/4', 'a reserved'),
];

const ipv6Blocks = [
  block('::/128', 'an unspecified'),
  block('::1/128', 'a loopback'),
  block('fc00::/7', 'a private'),
  block('fe80::/10', 'a link-local'),
  block('fec0::/10', 'a private'),
  block('ff00::/8', 'a multicast'),
  block('2001:db8::/32', 'a documentation'),
  block('3fff::/20', 'a documentation'),
  // Teredo and the other protocol assignments: tunnels and anycast services, not web servers.
  block('2001::/23', 'a reserved'),
];

/** `bitsAfter`: how many bits follow the embedded IPv4 address. */
const carriers = [
  { ...block('::ffff:0:0/96', ''), bitsAfter: 0n },
  { ...block('::ffff:0:0:0/96', ''), bitsAfter: 0n },
  { ...block('64:ff9b::/96', ''), bitsAfter: 0n },
  { ...block('2002::/16', ''), bitsAfter: 80n },
];
const globalUnicast = block('2000::/3', '');

/** Returns `a private`, `a loopback` ...; undefined for a public address. */
export function notPublic(address: string): string | undefined {
  if (isIPv4(address)) return kindOfIpv4(ipv4(address));
  // A zone (`fe80::1%eth0`) names the interface, not the target.
  const [bare = ''] = address.split('%');
  if (!isIPv6(bare)) return 'an unreadable';
  const value = ipv6(bare);
  const carrier = carriers.find((one) => holds(one, value, 128));
  if (carrier) return kindOfIpv4((value >> carrier.bitsAfter) & 0xffff_ffffn);
  const known = ipv6Blocks.find((one) => holds(one, value, 128));
  if (known) return known.kind;
  return holds(globalUnicast, value, 128) ? undefined : 'a reserved';
}

function kindOfIpv4(value: bigint): string | undefined {
  return ipv4Blocks.find((one) => holds(one, value, 32))?.kind;
}

function holds({ first, prefix }: Block, value: bigint, width: number): boolean {
  const rest = BigInt(width - prefix);
  return value >> rest === first >> rest;
}

function ipv4(address: string): bigint {
  return address.split('.').reduce((sum, part) => sum * 256n + BigInt(part), 0n);
}

/** `address` is valid. A dotted end counts as two groups; `::` stands for the missing groups. */
function ipv6(address: string): bigint {
  const hex = address.replace(/[^:]*\.[^:]*$/, (dotted) => {
    const value = ipv4(dotted);
    return `${(value >> 16n).toString(16)}:${(value & 0xffffn).toString(16)}`;
  });
  const [head = '', tail] = hex.split('::');
  const groups = (part: string) => part.split(':').filter((group) => group !== '');
  const before = groups(head);
  const after = groups(tail ?? '');
  const zeros = Array<string>(8 - before.length - after.length).fill('0');
  return [...before, ...zeros, ...after].reduce((sum, group) => sum * 65_536n + BigInt(`0x${group}`), 0n);
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

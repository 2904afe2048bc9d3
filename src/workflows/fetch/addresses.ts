/**
 * Which addresses are not of the public internet. A sitemap or a page may name any host, and whoever writes one could
 * make this process ask its own neighbours: a cloud's metadata service, a database, the router itself.
 *
 * IPv4 is public unless a special-purpose block (IANA's registry) holds the address. IPv6 is public only inside
 * 2000::/3, which is all that was ever given out, so that a block unknown here is refused. Addresses that carry an
 * IPv4 address in them are judged by that one: on a network with DNS64 every IPv4 site looks like 64:ff9b::/96.
 */
import { isIPv4, isIPv6 } from 'node:net';

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
  // Public by its number, but on Azure it is the host that a machine runs on.
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
  // Teredo and the other protocol assignments: tunnels and anycast services, no web server among them.
  block('2001::/23', 'a reserved'),
];

/** Where the IPv4 address stands: so many bits from the end. */
const carriers = [
  { ...block('::ffff:0:0/96', ''), bitsAfter: 0n },
  { ...block('::ffff:0:0:0/96', ''), bitsAfter: 0n },
  { ...block('64:ff9b::/96', ''), bitsAfter: 0n },
  { ...block('2002::/16', ''), bitsAfter: 80n },
];
const globalUnicast = block('2000::/3', '');

/** `a private`, `a loopback` ...: what makes this address not public; undefined for a public one. */
export function notPublic(address: string): string | undefined {
  if (isIPv4(address)) return kindOfIpv4(ipv4(address));
  // A zone (`fe80::1%eth0`) says through which interface, not where to.
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

/** `address` is valid. Its dotted end, if it has one, counts as two groups; `::` stands for the groups that lack. */
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

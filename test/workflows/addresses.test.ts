import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { notPublic } from '../../src/workflows/fetch/addresses.js';
import { propertyRuns } from '../support/property-runs.js';

describe('addresses', () => {
  it.each([
    ['0.0.0.0', 'an unspecified'],
    ['0.1.2.3', 'an unspecified'],
    ['10.0.0.8', 'a private'],
    ['10.255.255.255', 'a private'],
    ['100.64.0.1', 'a carrier-grade NAT'],
    ['100.127.255.255', 'a carrier-grade NAT'],
    ['127.0.0.1', 'a loopback'],
    ['127.255.255.254', 'a loopback'],
    ['168.63.129.16', 'a cloud host'],
    ['169.254.169.254', 'a link-local'],
    ['172.16.0.1', 'a private'],
    ['172.31.255.255', 'a private'],
    ['192.0.0.1', 'a reserved'],
    ['192.0.2.1', 'a documentation'],
    ['192.168.1.1', 'a private'],
    ['198.19.255.255', 'a benchmarking'],
    ['224.0.0.1', 'a multicast'],
    ['255.255.255.255', 'a reserved'],
    ['::', 'an unspecified'],
    ['::1', 'a loopback'],
    ['::7f00:1', 'a reserved'],
    ['fc00::1', 'a private'],
    ['fd00:ec2::254', 'a private'],
    ['fe80::1', 'a link-local'],
    ['fe80::1%eth0', 'a link-local'],
    ['febf::1', 'a link-local'],
    ['fec0::1', 'a private'],
    ['ff02::1', 'a multicast'],
    ['2001:db8::1', 'a documentation'],
    ['3fff::1', 'a documentation'],
    ['2001::1', 'a reserved'],
    ['100::1', 'a reserved'],
    ['64:ff9b:1::808:808', 'a reserved'],
    ['5f00::1', 'a reserved'],
    ['4000::1', 'a reserved'],
    // An IPv4 address inside.
    ['::ffff:127.0.0.1', 'a loopback'],
    ['::ffff:7f00:1', 'a loopback'],
    ['0:0:0:0:0:ffff:10.0.0.8', 'a private'],
    ['::ffff:0:192.168.0.1', 'a private'],
    ['64:ff9b::169.254.169.254', 'a link-local'],
    ['2002:7f00:1::1', 'a loopback'],
    ['2002:c0a8:101::', 'a private'],
    // Nothing that a resolver would give.
    ['', 'an unreadable'],
    ['localhost', 'an unreadable'],
    ['127.1', 'an unreadable'],
  ])('%s is %s address', (address, kind) => {
    expect(notPublic(address)).toBe(kind);
  });

  it.each([
    '1.1.1.1',
    '9.255.255.255',
    '11.0.0.0',
    '100.63.255.255',
    '100.128.0.0',
    '126.255.255.255',
    '128.0.0.0',
    '172.15.255.255',
    '172.32.0.0',
    '192.0.1.1',
    '192.167.255.255',
    '198.17.255.255',
    '198.20.0.0',
    '223.255.255.255',
    '2606:4700::1111',
    '2001:4860:4860::8888',
    '2a00:1450:4001::1',
    '::ffff:1.1.1.1',
    '64:ff9b::8.8.8.8',
    '2002:808:808::1',
  ])('%s is public', (address) => {
    expect(notPublic(address)).toBeUndefined();
  });

  it('every IPv4 address is judged the same inside an IPv6 address', () => {
    fc.assert(
      fc.property(fc.ipV4(), (address) => {
        expect(notPublic(`::ffff:${address}`)).toBe(notPublic(address));
        expect(notPublic(`64:ff9b::${address}`)).toBe(notPublic(address));
      }),
      { numRuns: propertyRuns(500) },
    );
  });

  it('every IPv6 address outside 2000::/3 without a public IPv4 address is refused', () => {
    fc.assert(
      fc.property(fc.ipV6(), (address) => {
        const refused = notPublic(address) !== undefined;
        const first = Number.parseInt(address.startsWith('::') ? '0' : address, 16);
        if (!(first >= 0x2000 && first < 0x4000) && first > 0x64) expect(refused).toBe(true);
      }),
      { numRuns: propertyRuns(500) },
    );
  });
});

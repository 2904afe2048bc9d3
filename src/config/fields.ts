/**
 * The kinds of values of environment variables. A kind describes what it expects, in words that follow "must be", and
 * parses text into a value or into problems. Names and defaults of variables are in table.ts.
 */
import { readFileSync } from 'node:fs';
import { isIP, isIPv6 } from 'node:net';
import { availableParallelism } from 'node:os';
import { formatDuration, parseDuration } from './durations.js';
import { isName, isPodName, parseTierConfigJson, showNames, type TierConfig } from './tiers.js';

export type Reading<T> =
  | { readonly value: T; readonly warnings?: readonly string[] }
  /** Each follows the variable's name; an empty list means "must be {expects}". */
  | { readonly problems: readonly string[] };

/** The end of the key of a value. */
export type KeyUnit = '' | 'Ms';

export interface Kind<T, Unit extends KeyUnit = ''> {
  readonly expects: string;
  readonly unit?: Unit;
  read(text: string): Reading<T>;
}

const wrong = { problems: [] } as const;
const check = <T>(value: T, ok: boolean): Reading<T> => (ok ? { value } : wrong);
const hasBlank = (text: string) => /[\s\p{Cc}]/u.test(text);

export const boolean: Kind<boolean> = {
  expects: 'true or false (also 1, 0, yes, no)',
  read(text) {
    const word = text.toLowerCase();
    if (['true', '1', 'yes'].includes(word)) return { value: true };
    return ['false', '0', 'no'].includes(word) ? { value: false } : wrong;
  },
};

export function choice<const T extends string>(...words: readonly T[]): Kind<T> {
  return {
    expects: `one of ${words.join(', ')}`,
    read(text) {
      const value = words.find((word) => word === text.toLowerCase());
      return value === undefined ? wrong : { value };
    },
  };
}

export function wholeNumber(min: number, max: number): Kind<number> {
  return {
    expects: `a whole number from ${min} to ${max}`,
    read: (text) => check(Number(text), /^\d{1,9}$/.test(text) && Number(text) >= min && Number(text) <= max),
  };
}

const workersMax = 128;

/** The cores of the container's CPU quota, rounded up; Infinity without one. Node 20 does not read the quota itself. */
export function quotaCores(folder = '/sys/fs/cgroup'): number {
  const read = (...files: string[]) => {
    try {
      return files.map((file) => readFileSync(`${folder}/${file}`, 'utf8').trim()).join(' ');
    } catch {
      return undefined;
    }
  };
  // `quota period` in microseconds; without a quota `max` in version 2 of cgroups, -1 in version 1.
  const text = read('cpu.max') ?? read('cpu/cpu.cfs_quota_us', 'cpu/cpu.cfs_period_us') ?? '';
  const [quota = Number.NaN, period = Number.NaN] = text.split(' ').map(Number);
  return quota > 0 && period > 0 ? Math.ceil(quota / period) : Number.POSITIVE_INFINITY;
}

/** `auto`: one for each core that this process may use. */
export const workers: Kind<number> = {
  expects: `a whole number from 1 to ${workersMax}, or auto`,
  read: (text) =>
    text.toLowerCase() === 'auto'
      ? { value: Math.min(availableParallelism(), quotaCores(), workersMax) }
      : wholeNumber(1, workersMax).read(text),
};

/** Minutes in the environment, milliseconds inside. */
export function minutes(min: number, max: number): Kind<number, 'Ms'> {
  const kind = wholeNumber(min, max);
  return {
    expects: `${kind.expects} (minutes)`,
    unit: 'Ms',
    read(text) {
      const reading = kind.read(text);
      return 'value' in reading ? { value: reading.value * 60_000 } : reading;
    },
  };
}

export function duration(min: string, max: string): Kind<number, 'Ms'> {
  const [minMs, maxMs] = [parseDuration(min), parseDuration(max)];
  if (minMs === undefined || maxMs === undefined) throw new RangeError(`not durations: ${min}, ${max}`);
  return {
    expects: `a duration from ${formatDuration(minMs)} to ${formatDuration(maxMs)} like 500ms, 30s or 1h30m`,
    unit: 'Ms',
    read(text) {
      const value = parseDuration(text);
      return value === undefined ? wrong : check(value, value >= minMs && value <= maxMs);
    },
  };
}

/** Adds words for "none". */
export function orOff<T, Unit extends KeyUnit>(
  kind: Kind<T, Unit>,
  ...words: readonly string[]
): Kind<T | undefined, Unit> {
  return {
    ...kind,
    expects: `${kind.expects}, or ${words[0]}`,
    read: (text) => (words.includes(text.toLowerCase()) ? { value: undefined } : kind.read(text)),
  };
}

/** One line of text without control characters. */
export function line(max: number): Kind<string> {
  return {
    expects: `1 to ${max} characters without control characters`,
    read: (text) => check(text, text.length <= max && !/\p{Cc}/u.test(text)),
  };
}

export function matching(expects: string, pattern: RegExp, max: number): Kind<string> {
  return { expects, read: (text) => check(text, text.length <= max && pattern.test(text)) };
}

const label = '[a-z0-9](?:[-a-z0-9]*[a-z0-9])?';
export const dnsLabel = matching('a DNS label (a-z 0-9 -, at most 63)', new RegExp(`^${label}$`), 63);
export const dnsName = matching(
  'a DNS name (a-z 0-9 - ., at most 253)',
  new RegExp(`^${label}(?:\\.${label})*$`),
  253,
);

/** A bearer key or token. Visible ASCII, because it is sent in a header. */
export function secret(min: number): Kind<string> {
  return {
    expects: `${min} to 512 visible ASCII characters without spaces or line breaks (a secret's file may end in one)`,
    read: (text) => check(text, text.length >= min && text.length <= 512 && /^[\x21-\x7e]+$/.test(text)),
  };
}

/** Without `*?[]\`, which are patterns in SCAN and in access rules. */
export const keyPrefix = matching(
  '1 to 64 visible ASCII characters without spaces and without * ? [ ] \\',
  /^(?!.*[*?[\]\\])[\x21-\x7e]+$/,
  64,
);

/** As in Redis: the text between the first { and the next } determines the slot, unless it is empty. */
export function hasHashTag(prefix: string): boolean {
  const open = prefix.indexOf('{');
  return open >= 0 && prefix.indexOf('}', open) > open + 1;
}

// ---- addresses ----

const stripBrackets = (host: string) => host.replace(/^\[(.*)\]$/, '$1');

function isHost(host: string): boolean {
  if (isIP(host)) return true;
  // A name whose last label has only digits is a mistyped IPv4 address.
  return host.length <= 253 && /^(?:[\w-]{1,63}\.)*[\w-]{1,63}$/.test(host) && !/(?:^|\.)\d+$/.test(host);
}

export const host: Kind<string> = {
  expects: 'an IP address or a host name, without a port',
  read: (text) => check(stripBrackets(text), isHost(stripBrackets(text))),
};

export function isLoopback(address: string): boolean {
  return /^(?:localhost|(?:::ffff:)?127\.\d+\.\d+\.\d+|::1)$/i.test(address);
}

function isAddressRange(text: string): boolean {
  if (['loopback', 'linklocal', 'uniquelocal'].includes(text)) return true;
  const [address = '', bits, ...more] = text.split('/');
  if (!isIP(address) || more.length > 0) return false;
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (isIPv6(address) ? 128 : 32));
}

/** The `trustProxy` of fastify. 1 is one hop, not "true". */
export const trustProxy: Kind<boolean | number | string[]> = {
  expects: 'false, true, a number of hops from 1 to 32, or addresses like 10.0.0.0/8,::1',
  read(text) {
    if (/^\d{1,2}$/.test(text)) return check(Number(text) || false, Number(text) <= 32);
    const word = boolean.read(text);
    if ('value' in word) return word;
    const ranges = text.split(',').map((range) => range.trim());
    return check(ranges, ranges.length <= 100 && ranges.every(isAddressRange));
  },
};

function parseUrl(text: string): URL | undefined {
  return !hasBlank(text) && text.length <= 2_048 && URL.canParse(text) ? new URL(text) : undefined;
}

/** A URL to append paths to: scheme, host, perhaps a path; no trailing slash, no query, no credentials. */
export function baseUrl(...schemes: readonly string[]): Kind<string> {
  return {
    expects: `a URL like ${schemes.at(-1)}://voice.example.com, perhaps with a path, without query, fragment or password (schemes: ${schemes.join(', ')})`,
    read(text) {
      const url = parseUrl(text);
      if (!url || !schemes.includes(url.protocol.slice(0, -1)) || url.username || url.password) return wrong;
      return check(url.href.replace(/\/+$/, ''), url.hostname !== '' && !/[?#]/.test(text));
    },
  };
}

/** An address for POST requests; it may be a secret itself. */
export const webhookUrl: Kind<string> = {
  expects:
    "an http:// or https:// address without blanks, user or password (a secret's file may end in a line break)",
  read(text) {
    const { protocol = '', username, password } = parseUrl(text) ?? {};
    return check(text, /^https?:$/.test(protocol) && !username && !password);
  },
};

/** `name=value,name=value`, as in other programs with OpenTelemetry. */
export const headerList: Kind<[name: string, value: string][]> = {
  expects: 'headers like name=value,other=value',
  read(text) {
    const pairs = text.split(',').map((pair) => /^\s*([\w!#$%&'*+.^`|~-]+)=([\x21-\x7e]+)\s*$/.exec(pair));
    if (!pairs.every((pair) => pair !== null)) return wrong;
    return { value: pairs.map(([, name = '', value = '']): [string, string] => [name, value]) };
  },
};

export const share: Kind<number> = {
  expects: 'a number from 0 to 1',
  read: (text) => check(Number(text), /^\d(\.\d{1,9})?$/.test(text) && Number(text) <= 1),
};

const placeholders = { base: 'ws://h', pod: 'p', provider: 'twilio', template: 't', flow: '/v2' };

/** The HTTP layer fills in the placeholders; this only checks that the result is a URL. */
export const wsUrlTemplate: Kind<string> = {
  expects: `a template of a ws:// or wss:// URL with {pod} in it; placeholders: ${Object.keys(placeholders)
    .map((name) => `{${name}}`)
    .join(', ')}`,
  read(text) {
    const used = [...text.matchAll(/\{([^{}]*)\}/g)].map((match) => match[1] ?? '');
    const unknown = used.filter((name) => !Object.hasOwn(placeholders, name));
    if (unknown.length > 0) return { problems: [`has unknown placeholders: ${showNames(unknown)}`] };
    const filled = text.replace(/\{(\w+)\}/g, (_, name: keyof typeof placeholders) => placeholders[name]);
    const url = parseUrl(filled);
    return check(text, /^wss?:$/.test(url?.protocol ?? '') && used.includes('pod') && !/[{}]/.test(filled));
  },
};

function isServer(text: string): boolean {
  const match = /^(\[[^\]]*\]|[^:[\]]*)(?::(\d{1,5}))?$/.exec(text);
  const [, name = '', port = '1'] = match ?? [];
  return isHost(stripBrackets(name)) && Number(port) >= 1 && Number(port) <= 65_535;
}

function canDecode(text: string): boolean {
  try {
    return decodeURIComponent(text) !== undefined;
  } catch {
    return false;
  }
}

const notEncoded = {
  problems: ['has a user or password with characters that must be percent-encoded (@ as %40, / as %2F)'],
};
/** A `/`, `?` or `#` before the `@` that ends user and password. */
const cutShort = /^[a-z+]+:\/\/[^/?#@]*[/?#].*@/i;

export const redisUrl: Kind<string> = {
  expects:
    'embedded, redis://host:port, rediss://host:port, redis+sentinel://host:port,host:port/name or redis+cluster://host:port,host:port',
  read(text) {
    if (text.toLowerCase() === 'embedded') return { value: 'embedded' };
    if (hasBlank(text) || text.length > 2_048) return wrong;
    if (cutShort.test(text)) return notEncoded;
    const match = /^(rediss?|redis\+sentinel|redis\+cluster):\/\/([^/?#]*)(?:\/([^?#]*))?(?:\?[^#]*)?$/.exec(
      text,
    );
    if (!match) return wrong;
    const [, scheme, authority = '', path = ''] = match;
    const at = authority.lastIndexOf('@');
    if (at >= 0 && (authority.slice(0, at).includes('@') || !canDecode(authority.slice(0, at)))) {
      return notEncoded;
    }
    const servers = authority.slice(at + 1).split(',');
    if (!servers.every(isServer)) return wrong;
    if (scheme === 'redis+cluster') return check(text, path === '');
    if (scheme === 'redis+sentinel') return check(text, /^[\w.:-]{1,128}$/.test(path));
    return check(text, servers.length === 1 && /^\d{0,5}$/.test(path));
  },
};

export const databaseUrl: Kind<string> = {
  expects: 'embedded, or a URL like postgres://user:password@host:5432/database',
  read(text) {
    if (text.toLowerCase() === 'embedded') return { value: 'embedded' };
    if (cutShort.test(text)) return notEncoded;
    return check(text, /^postgres(?:ql)?:$/.test(parseUrl(text)?.protocol ?? ''));
  },
};

/** Operators know them as `wf6` and `wf7`. */
const shippedNames = new Map<string, ShippedWorkflow>([
  ['sitemap-import', 'sitemap-import'],
  ['wf6', 'sitemap-import'],
  ['page-curation', 'page-curation'],
  ['wf7', 'page-curation'],
]);
export type ShippedWorkflow = 'sitemap-import' | 'page-curation';

export const shippedWorkflows: Kind<readonly ShippedWorkflow[]> = {
  expects: 'none, or some of sitemap-import (wf6), page-curation (wf7), separated by commas',
  read(text) {
    if (text.toLowerCase() === 'none') return { value: [] };
    const names = text.split(',').map((item) => shippedNames.get(item.trim().toLowerCase()));
    const known = names.filter((name) => name !== undefined);
    return check([...new Set(known)], known.length === names.length);
  },
};

/** Hides anything that could be a password in a URL, also in an invalid one. */
export function hidePassword(url: string): string {
  return url
    .replace(/^([a-z+]*:\/\/)?(?:([^:@]*):)?.*@/is, (_, scheme = '', user) =>
      user === undefined ? `${scheme}********@` : `${scheme}${user}:********@`,
    )
    .replace(/([?&][^=&]*(?:pass|token|secret)[^=&]*=)[^&]*/gi, '$1********');
}

// ---- lists and JSON ----

export interface StaticPod {
  readonly name: string;
  readonly tier?: string;
  readonly merchant?: string;
}

const staticPodsMax = 100_000;

/** `name`, `name=tier` or `name=merchant:id`, separated by commas; empty items are ignored. */
export const staticPods: Kind<readonly StaticPod[]> = {
  expects: `at most ${staticPodsMax} pods like a,b=gold,c=merchant:acme`,
  read(text) {
    const items = text.split(',').map((item) => item.trim());
    const given = items.filter((item) => item !== '');
    if (given.length > staticPodsMax)
      return { problems: [`has ${given.length} pods, at most ${staticPodsMax}`] };
    const pods = new Map<string, StaticPod>();
    const [malformed, twice]: [string[], string[]] = [[], []];
    for (const item of given) {
      const [, name = '', merchant, place] = /^([^=]*)(?:=(merchant:)?(.*))?$/s.exec(item) ?? [];
      if (!isPodName(name) || (place !== undefined && !isName(place))) malformed.push(item);
      else if (pods.has(name)) twice.push(name);
      else if (place === undefined) pods.set(name, { name });
      else pods.set(name, merchant ? { name, merchant: place } : { name, tier: place });
    }
    const problems: string[] = [];
    if (malformed.length > 0) {
      problems.push(
        `has entries that are not name, name=tier or name=merchant:id: ${showNames(malformed)} (names are DNS names, never "metadata")`,
      );
    }
    if (twice.length > 0) problems.push(`names pods twice: ${showNames(twice)}`);
    return problems.length > 0 ? { problems } : { value: [...pods.values()] };
  },
};

export const tierConfig: Kind<TierConfig> = {
  expects: 'a tier configuration in JSON like {"gold":10,"standard":20}',
  read(text) {
    const { config, warnings, problems } = parseTierConfigJson(text);
    return config ? { value: config, warnings } : { problems };
  },
};

/** Variables that must be the same on all replicas. */
export const sharedVariables =
  'POD_SOURCE, STATIC_PODS, TIER_CONFIG, LEASE_TTL, NO_SHOW_TIMEOUT or REPORT_GRACE';

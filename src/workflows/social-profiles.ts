/**
 * Recognises links to profiles, as opposed to links that share, log in or show a post. Normalises them: https, the
 * network's own host, no query.
 */
export interface SocialProfile {
  readonly network: string;
  readonly url: string;
}

interface Network {
  readonly network: string;
  readonly hosts: readonly string[];
  /** The part of the path that names the profile. */
  readonly profile: RegExp;
}

/** First path segments that are pages of the network itself. */
const own = `
  about ads business dialog events explore features groups hashtag help home i intent legal login
  marketplace p pin plugins policies policy privacy reel search settings share sharer sharer\\.php
  signup status stories terms tos tr tv watch joinchat addstickers sponsors topics orgs pricing pages
  people profile\\.php
`
  .trim()
  .split(/\s+/)
  .join('|');
/** One segment of 2 to 100 characters, other than those. */
const name = new RegExp(`^/(?!(?:${own})(?:/|$))[\\p{L}\\p{N}._%-]{2,100}(?=/|$)`, 'iu');
const handle = /^\/@[\p{L}\p{N}._%-]{2,100}(?=\/|$)/u;

const networks: readonly Network[] = [
  {
    network: 'linkedin',
    hosts: ['linkedin.com'],
    profile: /^\/(?:in|company|school|showcase)\/[\p{L}\p{N}._%-]{2,150}(?=\/|$)/u,
  },
  {
    network: 'facebook',
    hosts: ['facebook.com', 'fb.com'],
    profile: new RegExp(`^/(?:pages|people)/[\\p{L}\\p{N}._%-]{1,100}/\\d{5,20}(?=/|$)|${name.source}`, 'iu'),
  },
  { network: 'instagram', hosts: ['instagram.com'], profile: name },
  { network: 'x', hosts: ['x.com', 'twitter.com'], profile: name },
  {
    network: 'youtube',
    hosts: ['youtube.com'],
    profile: /^\/(?:@|channel\/|c\/|user\/)[\p{L}\p{N}._%-]{2,100}(?=\/|$)/u,
  },
  { network: 'tiktok', hosts: ['tiktok.com'], profile: handle },
  { network: 'threads', hosts: ['threads.net', 'threads.com'], profile: handle },
  { network: 'github', hosts: ['github.com'], profile: name },
  { network: 'pinterest', hosts: ['pinterest.com'], profile: name },
  { network: 'telegram', hosts: ['t.me', 'telegram.me'], profile: name },
  { network: 'whatsapp', hosts: ['wa.me'], profile: /^\/\d{8,15}(?=\/|$)/ },
  {
    network: 'xing',
    hosts: ['xing.com'],
    profile: /^\/(?:profile|companies|pages)\/[\p{L}\p{N}._%-]{2,100}(?=\/|$)/u,
  },
  { network: 'bluesky', hosts: ['bsky.app'], profile: /^\/profile\/[\p{L}\p{N}.:_%-]{2,253}(?=\/|$)/u },
];

export function socialProfile(url: URL): SocialProfile | undefined {
  // `de.linkedin.com`, `www.facebook.com`, `m.facebook.com`: the prefix is dropped.
  const host = url.hostname.replace(/^(?:www|m|mobile|[a-z]{2}(?:-[a-z]{2})?)\.(?=[^.]+\.[^.]+$)/, '');
  const found = networks.find(({ hosts }) => hosts.includes(host));
  const [path] = found?.profile.exec(url.pathname) ?? [];
  return found && path ? { network: found.network, url: `https://${found.hosts[0]}${path}` } : undefined;
}

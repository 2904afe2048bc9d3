/** Addresses inside the console: `#/pods/gold-2?tier=gold`. */
import { useLayoutEffect, useState } from 'preact/hooks';

export const pageNames = ['overview', 'pods', 'calls', 'recovery', 'records', 'tiers', 'events'] as const;
export type PageName = (typeof pageNames)[number];
/** Not in the navigation: alerts link to it. */
const runbook = 'runbook';
export type RouteName = PageName | typeof runbook;

export interface Route {
  page: RouteName;
  /** The item in the side panel. */
  item: string | undefined;
  /** The filters of the page. */
  query: Readonly<Record<string, string>>;
}

function parseRoute(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const [page = '', ...rest] = path.split('/');
  const known = [...pageNames, runbook].find((name) => name === page) as RouteName | undefined;
  const item = rest.join('/');
  return {
    page: known ?? 'overview',
    item: item === '' ? undefined : decode(item),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

/** The page for a path like `docs/runbook.md#smartrouternoleader`; undefined if this build does not contain it. */
export function runbookAddress(path: string): string | undefined {
  const [, name, anchor] = /^docs\/([\w-]+)\.md#([\w-]+)$/.exec(path) ?? [];
  return name === undefined ? undefined : `#/${runbook}/${name}/${anchor}`;
}

export function addressOf(page: RouteName, item?: string, query: Route['query'] = {}): string {
  const filled = Object.entries(query).filter(([, value]) => value !== '');
  const search = filled.length > 0 ? `?${new URLSearchParams(filled)}` : '';
  return `#/${page}${item === undefined ? '' : `/${encodeURIComponent(item)}`}${search}`;
}

export function go(address: string): void {
  location.hash = address;
}

export function closePanel(): void {
  const { page, item, query } = parseRoute(location.hash);
  if (item !== undefined && page !== runbook) go(addressOf(page, undefined, query));
}

/** Changes filters of the open page without a new entry in the browser history. */
export function refine(change: Record<string, string>): void {
  const { page, item, query } = parseRoute(location.hash);
  history.replaceState(null, '', addressOf(page, item, { ...query, ...change }));
  dispatchEvent(new HashChangeEvent('hashchange'));
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  // Not in an effect: that runs a frame later and could miss an input.
  useLayoutEffect(() => {
    const changed = () => setRoute(parseRoute(location.hash));
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return route;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

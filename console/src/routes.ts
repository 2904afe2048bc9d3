/** Addresses inside the console: `#/pods/gold-2?tier=gold`. The browser's back button and bookmarks work. */
import { useLayoutEffect, useState } from 'preact/hooks';

export const pageNames = ['overview', 'pods', 'calls', 'recovery', 'records', 'tiers', 'events'] as const;
export type PageName = (typeof pageNames)[number];
/** Not in the navigation: alerts and other pages of it lead there. */
const runbook = 'runbook';
export type RouteName = PageName | typeof runbook;

export interface Route {
  page: RouteName;
  /** What is open in the side panel. */
  item: string | undefined;
  query: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const [page = '', ...rest] = path.split('/');
  const known = [...pageNames, runbook].find((name) => name === page) as RouteName | undefined;
  const item = rest.join('/');
  return {
    page: known ?? 'overview',
    item: item === '' ? undefined : decode(item),
    query: new URLSearchParams(query),
  };
}

/** `docs/runbook.md#smartrouternoleader`, as alerts name it, to its page here; undefined of what this build does not have. */
export function runbookAddress(path: string): string | undefined {
  const [, name, anchor] = /^docs\/([\w-]+)\.md#([\w-]+)$/.exec(path) ?? [];
  return name === undefined ? undefined : `#/${runbook}/${name}/${anchor}`;
}

export function addressOf(page: RouteName, item?: string, query: Record<string, string> = {}): string {
  const filled = Object.entries(query).filter(([, value]) => value !== '');
  const search = filled.length > 0 ? `?${new URLSearchParams(filled)}` : '';
  return `#/${page}${item === undefined ? '' : `/${encodeURIComponent(item)}`}${search}`;
}

export function go(address: string): void {
  location.hash = address;
}

/** The same page with other filters: no new entry in the history for every letter typed. */
export function refine(address: string): void {
  history.replaceState(null, '', address);
  dispatchEvent(new HashChangeEvent('hashchange'));
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  // Before anybody can press or click: an effect comes a frame later, and would miss it.
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

/**
 * Lists, whole or in pages. All pages of one list show the same moment: a continue token carries the version of the
 * first page and the key after which to go on. When that version is expired the answer is 410 with another token,
 * for a client that would rather have the rest as it is now.
 */
import { ApiError, badRequest, expired } from './api-error.js';
import type { Resource } from './resources.js';
import { selectorOf } from './selectors.js';
import { keyOf, type Store } from './store.js';

interface Token {
  /** Zero: the latest version, after an expired token. */
  version: number;
  after: string;
}

const staleToken =
  'The provided continue parameter is too old to display a consistent list result. You can start a new list without ' +
  'the continue parameter, or use the continue token in this response to retrieve the remainder of the results.';

export function listOf(
  store: Store,
  resource: Resource,
  namespace: string | undefined,
  query: URLSearchParams,
  maxPage: number,
): string {
  const selector = selectorOf(query.get('labelSelector') ?? '', query.get('fieldSelector') ?? '');
  const token = tokenOf(query);
  const { version, after } = token ?? { version: versionOf(store, query), after: '' };
  const snapshot = store.snapshot(resource, namespace, version || store.version);
  if (!snapshot) {
    if (!token) throw expired(version, store.history(resource).floor);
    throw new ApiError(410, 'Expired', staleToken, { continue: encoded({ version: 0, after }) });
  }
  // "Any version" is served from the server's cache, which knows no pages.
  const isAny = query.get('resourceVersion') === '0' && query.get('resourceVersionMatch') !== 'Exact';
  const asked = countOf(query, 'limit');
  const limit = asked === 0 || isAny ? Number.POSITIVE_INFINITY : Math.min(asked, maxPage);

  const items: string[] = [];
  const metadata: Record<string, unknown> = { resourceVersion: String(version || store.version) };
  let last = '';
  let place = after === '' ? 0 : firstAfter(snapshot, after);
  for (; place < snapshot.length; place += 1) {
    const one = snapshot[place];
    if (!one || !selector.matches(one)) continue;
    if (items.length === limit) {
      metadata.continue = encoded({ version: version || store.version, after: last });
      if (selector.all) metadata.remainingItemCount = snapshot.length - place;
      break;
    }
    // An item of a list says neither its kind nor its version.
    items.push(`{${one.json.slice(headOf(resource).length)}`);
    last = keyOf(one);
  }
  const head = `"kind":"${resource.kind}List","apiVersion":"${resource.apiVersion}"`;
  return `{${head},"metadata":${JSON.stringify(metadata)},"items":[${items.join(',')}]}`;
}

/** How the text of every stored object begins. */
const headOf = ({ kind, apiVersion }: Resource) => `{"kind":"${kind}","apiVersion":"${apiVersion}",`;

/** The exact version that is asked for, or zero for the latest. */
function versionOf(store: Store, query: URLSearchParams): number {
  const version = countOf(query, 'resourceVersion');
  if (version > store.version) {
    throw new ApiError(504, 'Timeout', `Too large resource version: ${version}, current: ${store.version}`, {
      details: { causes: [{ reason: 'ResourceVersionTooLarge', message: 'Too large resource version' }] },
      retryAfterSeconds: 1,
    });
  }
  const match = query.get('resourceVersionMatch') ?? '';
  if (match === 'Exact') return version;
  if (match !== '' && match !== 'NotOlderThan')
    throw badRequest(`resourceVersionMatch: unsupported value "${match}"`);
  // Without a word about it, a limit makes the version an exact one; else it means "not older than".
  return match === '' && countOf(query, 'limit') > 0 ? version : 0;
}

export function countOf(query: URLSearchParams, field: string): number {
  const text = query.get(field) ?? '';
  if (text === '') return 0;
  if (!/^\d{1,15}$/.test(text)) throw badRequest(`${field}: Invalid value: "${text}"`);
  return Number(text);
}

function firstAfter(snapshot: readonly { namespace: string; name: string }[], key: string): number {
  const place = snapshot.findIndex((one) => keyOf(one) > key);
  return place === -1 ? snapshot.length : place;
}

const encoded = ({ version, after }: Token) =>
  Buffer.from(JSON.stringify({ v: 'meta.k8s.io/v1', rv: version, start: after })).toString('base64url');

function tokenOf(query: URLSearchParams): Token | undefined {
  const text = query.get('continue') ?? '';
  if (text === '') return undefined;
  if ((query.get('resourceVersion') ?? '0') !== '0') {
    throw badRequest('specifying resource version is not allowed when using continue');
  }
  try {
    const { rv, start } = JSON.parse(Buffer.from(text, 'base64url').toString()) as Record<string, unknown>;
    if (Number.isInteger(rv) && typeof start === 'string') return { version: rv as number, after: start };
  } catch {
    // Falls through: whatever it is, it is not one of ours.
  }
  throw badRequest('continue key is not valid: encoded continue token could not be decoded');
}

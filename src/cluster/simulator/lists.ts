/**
 * Lists, whole or in pages, always of the latest version: `resourceVersion` is ignored. All pages of a list show the
 * same version: the continue token contains the version of the first page and the last key. When that version is expired
 * the answer is 410 with a token for the rest of the list at the latest version.
 */
import { ApiError, badRequest } from './api-error.js';
import type { Resource } from './resources.js';
import { selectorOf } from './selectors.js';
import { keyOf, type Store } from './store.js';

interface Token {
  /** Zero: the latest version. */
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
  const version = token.version || store.version;
  const { after } = token;
  const snapshot = store.snapshot(resource, namespace, version);
  if (!snapshot) throw new ApiError(410, staleToken, { continue: encode({ version: 0, after }) });
  const wanted = countOf(query, 'limit');
  const limit = wanted === 0 ? Number.POSITIVE_INFINITY : Math.min(wanted, maxPage);

  const items: string[] = [];
  const metadata: Record<string, unknown> = { resourceVersion: String(version) };
  let last = '';
  const start = after === '' ? 0 : snapshot.findIndex((one) => keyOf(one) > after);
  for (let i = start === -1 ? snapshot.length : start; i < snapshot.length; i += 1) {
    const one = snapshot[i];
    if (!one || !selector.matches(one)) continue;
    if (items.length === limit) {
      metadata.continue = encode({ version, after: last });
      if (selector.all) metadata.remainingItemCount = snapshot.length - i;
      break;
    }
    // Items of a list have no kind and no apiVersion.
    items.push(`{${one.json.slice(headOf(resource).length)}`);
    last = keyOf(one);
  }
  const head = `"kind":"${resource.kind}List","apiVersion":"${resource.apiVersion}"`;
  return `{${head},"metadata":${JSON.stringify(metadata)},"items":[${items.join(',')}]}`;
}

/** The beginning of every stored object. */
const headOf = ({ kind, apiVersion }: Resource) => `{"kind":"${kind}","apiVersion":"${apiVersion}",`;

export function countOf(query: URLSearchParams, field: string): number {
  const text = query.get(field) ?? '';
  if (text === '') return 0;
  if (!/^\d{1,15}$/.test(text)) throw badRequest(`${field}: Invalid value: "${text}"`);
  return Number(text);
}

const encode = ({ version, after }: Token) =>
  Buffer.from(JSON.stringify({ v: 'meta.k8s.io/v1', rv: version, start: after })).toString('base64url');

function tokenOf(query: URLSearchParams): Token {
  const text = query.get('continue') ?? '';
  if (text === '') return { version: 0, after: '' };
  try {
    const { rv, start } = JSON.parse(Buffer.from(text, 'base64url').toString()) as Record<string, unknown>;
    if (Number.isInteger(rv) && typeof start === 'string') return { version: rv as number, after: start };
  } catch {
    // Falls through.
  }
  throw badRequest('continue key is not valid: encoded continue token could not be decoded');
}

/**
 * Who asked for what: a request in the words of RBAC, a bounded log of them, and the rules of a Role that may refuse
 * one. A test compares what the code used with what the Helm chart grants.
 */
import { ApiError } from './api-error.js';
import type { Resource } from './resources.js';

export type Verb = 'get' | 'list' | 'watch' | 'create' | 'update' | 'patch' | 'delete';

/** A request for an object or a collection, as RBAC sees it, and from whom it came. */
export interface SeenRequest {
  /** The name that `kubeconfigFor` was given; `anonymous` without a token. */
  readonly client: string;
  readonly userAgent: string;
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly verb: Verb;
  /** `pods`, `leases`, `pods/status`. */
  readonly resource: string;
  readonly group: string;
  readonly namespace: string | undefined;
  readonly name: string | undefined;
}

/** Which requests; what is left out matches everything. */
export interface RequestFilter {
  client?: string;
  verb?: Verb;
  resource?: string;
  name?: string;
  match?: (request: SeenRequest) => boolean;
}

export function fits(filter: RequestFilter, request: SeenRequest): boolean {
  const { client, verb, resource, name, match } = filter;
  const wanted = { client, verb, resource, name };
  const differs = Object.entries(wanted).some(
    ([field, value]) => value !== undefined && request[field as keyof typeof wanted] !== value,
  );
  return !differs && (match?.(request) ?? true);
}

/** A rule of a Role, as it is written in its manifest. */
export interface PolicyRule {
  apiGroups: readonly string[];
  resources: readonly string[];
  verbs: readonly string[];
  resourceNames?: readonly string[];
}

/** What RBAC looks at. */
export type Attributes = Pick<SeenRequest, 'resource' | 'group' | 'name'> & { verb: string };

export function isAllowed(
  rules: readonly PolicyRule[],
  { verb, resource, group, name }: Attributes,
): boolean {
  const has = (list: readonly string[], value: string) => list.includes(value) || list.includes('*');
  return rules.some(
    ({ apiGroups, resources, verbs, resourceNames = [] }) =>
      has(apiGroups, group) &&
      has(resources, resource) &&
      has(verbs, verb) &&
      (resourceNames.length === 0 || (name !== undefined && resourceNames.includes(name))),
  );
}

/** Throws 403 as the API server words it, unless a rule allows the request. */
export function authorize(rules: readonly PolicyRule[], request: SeenRequest): void {
  if (isAllowed(rules, request)) return;
  const { client, verb, resource, group, namespace, name } = request;
  const object = name === undefined ? '' : ` "${name}"`;
  const where = namespace === undefined ? ' at the cluster scope' : ` in the namespace "${namespace}"`;
  throw new ApiError(
    403,
    'Forbidden',
    `${resource}${object} is forbidden: User "${client}" cannot ${verb} resource "${resource}" in API group "${group}"${where}`,
  );
}

const longestLog = 10_000;

export class RequestLog {
  #entries: SeenRequest[] = [];
  readonly #used = new Set<string>();

  add(request: SeenRequest): void {
    this.#used.add(`${request.verb} ${request.resource}`);
    // Cut in half instead of one by one: a shift of ten thousand entries for every request would be felt.
    if (this.#entries.length >= longestLog) this.#entries = this.#entries.slice(longestLog / 2);
    this.#entries.push(request);
  }

  /** The latest ones, oldest first. */
  list(filter: RequestFilter = {}): SeenRequest[] {
    return this.#entries.filter((request) => fits(filter, request));
  }

  count(filter: RequestFilter = {}): number {
    return this.list(filter).length;
  }

  /** Every pair that was ever used, sorted: `['create leases', 'list pods', ...]`. Not bounded by the log. */
  used(): string[] {
    return [...this.#used].sort();
  }

  clear(): void {
    this.#entries = [];
    this.#used.clear();
  }
}

const verbs: Readonly<Record<string, Verb>> = {
  POST: 'create',
  PUT: 'update',
  PATCH: 'patch',
  DELETE: 'delete',
};

/** Undefined when the method does nothing there. */
export function verbOf(method: string, hasName: boolean, isWatch: boolean): Verb | undefined {
  if (method === 'GET' || method === 'HEAD') return hasName ? 'get' : isWatch ? 'watch' : 'list';
  const verb = verbs[method];
  return (verb === 'create') === hasName ? undefined : verb;
}

export interface Target {
  resource: Resource;
  namespace: string | undefined;
  name: string | undefined;
  subresource: string | undefined;
}

/** Undefined when no resource of ours lives at this path. */
export function targetOf(path: string, resources: readonly Resource[]): Target | undefined {
  const [, root, rest] = /^(\/api\/v1|\/apis\/[^/]+\/v1)\/(.+)$/.exec(path) ?? [];
  if (root === undefined || rest === undefined) return undefined;
  const parts = rest.split('/').map(decoded);
  const isNamespaced = parts[0] === 'namespaces' && parts.length > 2;
  const [plural, name, subresource, ...more] = isNamespaced ? parts.slice(2) : parts;
  const resource = resources.find(
    (one) => one.plural === plural && root === (one.group === '' ? '/api/v1' : `/apis/${one.apiVersion}`),
  );
  if (!resource || more.length > 0 || parts.includes('')) return undefined;
  // Across all namespaces there are only collections.
  if (!isNamespaced && name !== undefined) return undefined;
  if (subresource !== undefined && !resource.subresources.includes(subresource)) return undefined;
  return { resource, namespace: isNamespaced ? parts[1] : undefined, name, subresource };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return '';
  }
}

/**
 * Requests as RBAC sees them, a bounded log of them, and the rules of a Role that can reject them. A test compares the
 * requests of the router with the rules of the Helm chart.
 */
import { ApiError } from './api-error.js';
import { type Resource, resources, rootOf } from './resources.js';

export type Verb = 'get' | 'list' | 'watch' | 'create' | 'update' | 'delete';

/** A request for an object or a collection. */
export interface SeenRequest {
  /** The argument of `kubeconfigFor`; `anonymous` without a token. */
  readonly client: string;
  readonly userAgent: string;
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly verb: Verb;
  /** In the plural: `pods`. */
  readonly resource: string;
  readonly group: string;
  readonly namespace: string | undefined;
  readonly name: string | undefined;
}

/** Undefined fields match every request. */
export interface RequestFilter {
  client?: string;
  verb?: Verb;
  resource?: string;
  name?: string;
  match?: (request: SeenRequest) => boolean;
}

export function matches(filter: RequestFilter, request: SeenRequest): boolean {
  const fields = ['client', 'verb', 'resource', 'name'] as const;
  const isEqual = fields.every((field) => filter[field] === undefined || filter[field] === request[field]);
  return isEqual && (filter.match?.(request) ?? true);
}

/** A rule of a Role, as in its manifest. */
export interface PolicyRule {
  apiGroups: readonly string[];
  resources: readonly string[];
  verbs: readonly string[];
  resourceNames?: readonly string[];
}

export function isAllowed(
  rules: readonly PolicyRule[],
  { verb, resource, group, name }: Pick<SeenRequest, 'resource' | 'group' | 'name'> & { verb: string },
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

/** Throws 403 with the message of the API server, unless a rule allows the request. */
export function authorize(rules: readonly PolicyRule[], request: SeenRequest): void {
  if (isAllowed(rules, request)) return;
  const { client, verb, resource, group, namespace, name } = request;
  const object = name === undefined ? '' : ` "${name}"`;
  const where = namespace === undefined ? ' at the cluster scope' : ` in the namespace "${namespace}"`;
  throw new ApiError(
    403,
    `${resource}${object} is forbidden: User "${client}" cannot ${verb} resource "${resource}" in API group "${group}"${where}`,
  );
}

const maxLogEntries = 10_000;

export class RequestLog {
  #entries: SeenRequest[] = [];
  readonly #used = new Set<string>();

  add(request: SeenRequest): void {
    this.#used.add(`${request.verb} ${request.resource}`);
    // Drops half of the log at once: shifting 10,000 entries for every request would be slow.
    if (this.#entries.length >= maxLogEntries) this.#entries = this.#entries.slice(maxLogEntries / 2);
    this.#entries.push(request);
  }

  /** The latest requests, oldest first. */
  list(filter: RequestFilter = {}): SeenRequest[] {
    return this.#entries.filter((request) => matches(filter, request));
  }

  count(filter: RequestFilter = {}): number {
    return this.list(filter).length;
  }

  /** All verbs and resources since the start, sorted: `['create leases', 'list pods', ...]`. */
  used(): string[] {
    return [...this.#used].sort();
  }
}

const verbs: Readonly<Record<string, Verb>> = {
  POST: 'create',
  PUT: 'update',
  DELETE: 'delete',
};

/** Undefined when the method is not allowed there. */
export function verbOf(method: string, hasName: boolean, isWatch: boolean): Verb | undefined {
  if (method === 'GET' || method === 'HEAD') return hasName ? 'get' : isWatch ? 'watch' : 'list';
  const verb = verbs[method];
  return (verb === 'create') === hasName ? undefined : verb;
}

export interface Target {
  resource: Resource;
  namespace: string | undefined;
  name: string | undefined;
}

/** Undefined when the path belongs to no resource. */
export function targetOf(path: string): Target | undefined {
  const [, root, rest] = /^(\/api\/v1|\/apis\/[^/]+\/v1)\/(.+)$/.exec(path) ?? [];
  if (root === undefined || rest === undefined) return undefined;
  const parts = rest.split('/').map(decoded);
  const isNamespaced = parts[0] === 'namespaces' && parts.length > 2;
  const [plural, name, ...more] = isNamespaced ? parts.slice(2) : parts;
  const resource = resources.find((one) => one.plural === plural && root === rootOf(one));
  if (!resource || more.length > 0 || parts.includes('')) return undefined;
  // Across all namespaces only collections exist.
  if (!isNamespaced && name !== undefined) return undefined;
  return { resource, namespace: isNamespaced ? parts[1] : undefined, name };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return '';
  }
}

/** The verbs of requests as RBAC sees them, and the objects that their paths name. */
import { type Resource, resources, rootOf } from './resources.js';

export type Verb = 'get' | 'list' | 'watch' | 'create' | 'update' | 'delete';

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

/**
 * Finds the API server and the credentials as kubectl does: `KUBECONFIG`, else `~/.kube/config`, else the service account
 * of the pod.
 *
 * Credential plugins (`exec`, `auth-provider`) and proxies are left to `@kubernetes/client-node`. Only such a kubeconfig
 * loads it: with its classes for every resource of Kubernetes it takes 50 MB of memory.
 */
import { existsSync, readFileSync } from 'node:fs';
import type { RequestOptions } from 'node:https';
import { isIPv6 } from 'node:net';
import { homedir } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import type { Config } from '../../config/config.js';
import { messageOf } from '../../errors.js';

export interface Access {
  server: string;
  /** Read for every request, because tokens rotate. */
  tokenFile: string | undefined;
  isProxied: boolean;
  /** Adds certificates and credentials, except the token of a token file. Certificate files are read every time. */
  apply(options: RequestOptions): Promise<void>;
}

export type AccessConfig = Partial<
  Pick<Config, 'kubeconfig' | 'kubernetesServiceHost' | 'kubernetesServicePort'>
>;

interface Cluster {
  server: string;
  'certificate-authority'?: string;
  'certificate-authority-data'?: string;
  'insecure-skip-tls-verify'?: boolean;
  'tls-server-name'?: string;
  'proxy-url'?: string;
}

interface User {
  token?: string;
  tokenFile?: string;
  username?: string;
  password?: string;
  'client-certificate'?: string;
  'client-certificate-data'?: string;
  'client-key'?: string;
  'client-key-data'?: string;
  as?: string;
  exec?: object;
  'auth-provider'?: { config?: { tokenFile?: string } };
}

interface Kubeconfig {
  clusters?: { name: string; cluster: Cluster }[];
  users?: { name: string; user?: User | null }[];
  contexts?: { name: string; context: { cluster: string; user?: string } }[];
  'current-context'?: string;
}

export async function findAccess(
  { kubeconfig, kubernetesServiceHost: host, kubernetesServicePort: port = 443 }: AccessConfig,
  serviceAccount = '/var/run/secrets/kubernetes.io/serviceaccount',
): Promise<Access> {
  const named = (kubeconfig ?? '').split(delimiter).filter(Boolean);
  const ownFile = join(homedir(), '.kube', 'config');
  const files = named.length === 0 && existsSync(ownFile) ? [ownFile] : named;
  if (files.length > 0) return accessOf(...(await readFiles(files)));
  const tokenFile = `${serviceAccount}/token`;
  if (!host || !existsSync(tokenFile))
    throw new Error(
      'neither ~/.kube/config nor a service account exists; set KUBECONFIG, or POD_SOURCE=static or registered to run without Kubernetes',
    );
  const server = `https://${isIPv6(host) ? `[${host}]` : host}:${port}`;
  return accessOf({ server, 'certificate-authority': `${serviceAccount}/ca.crt` }, { tokenFile });
}

/** Merges files as kubectl does: the first with a name or a current context wins, and missing files are skipped. */
async function readFiles(files: readonly string[]): Promise<[Cluster, User]> {
  const present = files.filter(existsSync);
  if (present.length === 0) throw new Error(`no such file: ${files.join(', ')}`);
  const { load } = await import('js-yaml');
  const parts = present.map((file) => {
    const part = parsed(file, load);
    if (typeof part !== 'object' || part === null || Array.isArray(part))
      throw new Error(`${file} is not a kubeconfig`);
    return withAbsolutePaths(part, dirname(file));
  });
  const current = parts.map((part) => part['current-context']).find(Boolean);
  if (!current) throw new Error('it has no current context (`kubectl config use-context` sets one)');
  const find = <T extends { name: string }>(
    kind: string,
    all: (part: Kubeconfig) => T[] | undefined,
    name?: string,
  ) => {
    const found = parts.flatMap((part) => all(part) ?? []).find((one) => one.name === name);
    if (!found) throw new Error(`the ${kind} ${JSON.stringify(name ?? '')} does not exist`);
    return found;
  };
  const { context } = find('current context', ({ contexts }) => contexts, current);
  const { cluster } = find('cluster', ({ clusters }) => clusters, context?.cluster);
  if (!/^https?:$/.test(URL.canParse(cluster?.server) ? new URL(cluster.server).protocol : ''))
    throw new Error(`the cluster ${JSON.stringify(context.cluster)} has no valid server: ${cluster?.server}`);
  const user = context.user ? find('user', ({ users }) => users, context.user).user : undefined;
  return [cluster, user ?? {}];
}

function parsed(file: string, load: (text: string) => unknown): Kubeconfig | null | undefined {
  try {
    return load(readFileSync(file, 'utf8')) as Kubeconfig | null | undefined;
  } catch (error) {
    throw new Error(`${file}: ${messageOf(error)}`);
  }
}

function withAbsolutePaths(part: Kubeconfig, folder: string): Kubeconfig {
  const absolute = <T extends object>(value: T, ...fields: (keyof T)[]) => {
    for (const field of fields) {
      const path = value[field];
      if (typeof path === 'string' && path !== '') Object.assign(value, { [field]: resolve(folder, path) });
    }
  };
  for (const { cluster } of part.clusters ?? []) absolute(cluster, 'certificate-authority');
  for (const { user } of part.users ?? [])
    if (user) absolute(user, 'client-certificate', 'client-key', 'tokenFile');
  return part;
}

async function accessOf(cluster: Cluster, { 'auth-provider': provider, ...user }: User): Promise<Access> {
  // Kubeconfigs written by the library name a token file as an `auth-provider`.
  const tokenFile = user.tokenFile || provider?.config?.tokenFile || undefined;
  const plugin = tokenFile === undefined ? provider : undefined;
  const isProxied = Boolean(cluster['proxy-url']);
  const library =
    isProxied || user.exec || plugin
      ? await loadLibrary(cluster, { ...user, ...(plugin ? { 'auth-provider': plugin } : {}) })
      : undefined;
  return {
    server: cluster.server,
    tokenFile,
    isProxied,
    async apply(options) {
      const given: RequestOptions = {
        rejectUnauthorized: cluster['insecure-skip-tls-verify'] === true ? false : undefined,
        servername: cluster['tls-server-name'] || undefined,
        ca: fileOrData(cluster['certificate-authority'], cluster['certificate-authority-data']),
        cert: fileOrData(user['client-certificate'], user['client-certificate-data']),
        key: fileOrData(user['client-key'], user['client-key-data']),
        auth: user.username ? `${user.username}:${user.password ?? ''}` : undefined,
      };
      // An option that is present but undefined would switch the verification off.
      for (const [name, value] of Object.entries(given))
        if (value !== undefined) Object.assign(options, { [name]: value });
      options.headers = {
        ...(options.headers as object),
        ...(user.as ? { 'Impersonate-User': user.as } : {}),
        ...(user.token && tokenFile === undefined ? { authorization: `Bearer ${user.token}` } : {}),
      };
      await library?.applyToHTTPSOptions(options).catch((error: unknown) => {
        throw new Error(`credentials of the kubeconfig: ${messageOf(error)}`);
      });
    },
  };
}

function fileOrData(file: string | undefined, data: string | undefined): Buffer | undefined {
  if (data) return Buffer.from(data, 'base64');
  return file ? readFileSync(file) : undefined;
}

async function loadLibrary(cluster: Cluster, user: User) {
  const { KubeConfig } = await import('@kubernetes/client-node');
  const config = new KubeConfig();
  const name = 'current';
  // Without TLS there is nothing to verify; unlike kubectl, the library otherwise rejects such a server.
  const isPlain = cluster.server.startsWith('http:');
  const reached = isPlain ? { ...cluster, 'insecure-skip-tls-verify': true } : cluster;
  config.loadFromString(
    JSON.stringify({
      clusters: [{ name, cluster: reached }],
      users: [{ name, user }],
      contexts: [{ name, context: { cluster: name, user: name } }],
      'current-context': name,
    }),
  );
  return config;
}

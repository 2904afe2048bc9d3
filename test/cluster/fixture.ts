/** The Kubernetes client of the router before a simulated cluster, or before a server that answers what a test says. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import * as http from 'node:http';
import * as https from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { type Clock, systemClock } from '../../src/clock.js';
import { connectKubernetes, type KubeApi } from '../../src/cluster/kubernetes/api.js';
import { type Cluster, type ClusterOptions, startCluster } from '../support/cluster.js';

export interface Kubernetes {
  /** A new folder of its own; gone at the end. */
  folder: string;
  file(name: string, text: string): string;
  cluster(options?: Partial<ClusterOptions>): Promise<Cluster>;
  serve(answer: http.RequestListener, tls?: Certificate): Promise<string>;
  certificate(): Certificate;
  /** Texts of kubeconfig files, in the order of KUBECONFIG. */
  connect(kubeconfig: string | readonly string[], clock?: Clock): Promise<KubeApi>;
  stop(): Promise<void>;
}

export interface Certificate {
  key: string;
  cert: string;
}

export function kubernetes(): Kubernetes {
  const folder = mkdtempSync(join(tmpdir(), 'smart-router-kubernetes-'));
  const ends: (() => unknown)[] = [];
  let files = 0;
  const file = (name: string, text: string) => {
    const path = join(folder, name);
    writeFileSync(path, text);
    return path;
  };
  return {
    folder,
    file,
    async cluster(options = {}) {
      const cluster = await startCluster({ clock: systemClock, ...options });
      ends.push(() => cluster.stop());
      return cluster;
    },
    async serve(answer, tls) {
      const server = tls ? https.createServer(tls, answer) : http.createServer(answer);
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      ends.push(() => {
        server.close();
        server.closeAllConnections();
      });
      return `http${tls ? 's' : ''}://127.0.0.1:${(server.address() as AddressInfo).port}`;
    },
    certificate() {
      const [key, cert] = [join(folder, 'key.pem'), join(folder, 'certificate.pem')];
      execFileSync(
        'openssl',
        [
          ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'],
          ...['-days', '2', '-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1'],
          ...['-keyout', key, '-out', cert],
        ],
        { stdio: 'pipe' },
      );
      return { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') };
    },
    async connect(kubeconfig, clock = systemClock) {
      const texts = typeof kubeconfig === 'string' ? [kubeconfig] : kubeconfig;
      const paths = texts.map((text) => {
        files += 1;
        return file(`kubeconfig-${files}`, text);
      });
      const api = await connectKubernetes({ kubeconfig: paths.join(delimiter) }, clock);
      ends.push(() => api.close());
      return api;
    },
    async stop() {
      for (const end of ends.splice(0).reverse()) await end();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** A kubeconfig with one context; JSON is YAML. */
export function kubeconfig(
  server: string,
  extra: { user?: object; cluster?: object; name?: string } = {},
): string {
  const { user = {}, cluster = {}, name = 'main' } = extra;
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name, cluster: { server, ...cluster } }],
    users: [{ name, user }],
    contexts: [{ name, context: { cluster: name, user: name } }],
    'current-context': name,
  });
}

export async function take<T>(items: AsyncIterable<T>, count: number): Promise<T[]> {
  const taken: T[] = [];
  for await (const item of items) {
    taken.push(item);
    if (taken.length === count) break;
  }
  return taken;
}

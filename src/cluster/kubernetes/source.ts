/**
 * The voice agents of a Kubernetes namespace: listed in pages, then watched from the version of the list.
 *
 * A watch is asked for bookmarks, so that a quiet one can still be resumed, and ends in one of three ways: the server
 * ends it (go on from the last version), the version is too old (`VersionExpired`: list again), or it breaks or falls
 * silent, which is an error like any other. Whoever uses it decides when to try again.
 */
import type { Clock } from '../../clock.js';
import type { Logger } from '../../observe/log.js';
import { type ClusterPod, type PodChange, type PodSource, VersionExpired } from '../pods.js';
import { type KubeApi, KubeError } from './api.js';
import { observePod } from './pods.js';

/** As kubectl asks: a page of large pods is about 7 MB, of which one pod at a time is in memory. */
const pageSize = 500;
const pageTimeoutMs = 15_000;
const podTimeoutMs = 3000;
/** A million pods: a server that has more pages never ends. */
const mostPages = 2000;
/** A list whose pages run out of date starts over; an API server that cannot keep one for a minute is broken. */
const mostLists = 3;
/** A message is a sentence; a line of a watch may have 16 MB. */
const longestMessage = 500;

export interface KubernetesSourceOptions {
  api: KubeApi;
  namespace: string;
  labelSelector: string;
  /** A watch without a sign of life for this long is given up; on a quiet cluster bookmarks are up to 120 s apart. */
  silenceMs: number;
  clock: Clock;
  log: Logger;
}

interface PodListPage {
  metadata?: { resourceVersion?: unknown; continue?: unknown };
  items?: unknown[];
}

interface PodObject {
  status?: { phase?: unknown };
}

interface WatchEvent {
  type?: unknown;
  object?: { metadata?: { resourceVersion?: unknown }; code?: unknown; message?: unknown };
}

export function kubernetesSource(options: KubernetesSourceOptions): PodSource {
  const { api, namespace, labelSelector, silenceMs, clock, log } = options;
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods`;

  const observe = (object: unknown): ClusterPod | undefined => {
    const pod = observePod(object);
    if (!pod) log.warn('the Kubernetes API named a pod that cannot be one: it is left alone');
    return pod;
  };

  async function readPage(more: Record<string, string>, signal: AbortSignal, timeoutMs = pageTimeoutMs) {
    const query = { labelSelector, ...more };
    const pods: ClusterPod[] = [];
    const page = await api.items<PodListPage | null>({ path, query, timeoutMs, signal }, (item) => {
      const pod = observe(item);
      if (pod) pods.push(pod);
    });
    if (!Array.isArray(page?.items)) throw new KubeError(`the answer to GET ${path} is no list of pods`);
    return { metadata: page.metadata, pods };
  }

  async function listOnce(signal: AbortSignal) {
    const pods: ClusterPod[] = [];
    let next = '';
    let version: string | undefined;
    for (let pages = 1; ; pages += 1) {
      const page = await readPage(
        { limit: String(pageSize), ...(next === '' ? {} : { continue: next }) },
        signal,
      );
      pods.push(...page.pods);
      // Later pages show the same moment as the first.
      version ??= textOf(page.metadata?.resourceVersion);
      next = textOf(page.metadata?.continue) ?? '';
      if (next === '') return { pods, version: version ?? '' };
      if (pages >= mostPages) throw new KubeError(`the list at ${path} has no end after ${pages} pages`);
    }
  }

  return {
    name: 'kubernetes',

    async list(signal) {
      for (let tries = 1; ; tries += 1) {
        try {
          return await listOnce(signal);
        } catch (error) {
          if (!isExpired(error) || tries >= mostLists) throw error;
        }
      }
    },

    async exists(name, signal) {
      const one = `${path}/${encodeURIComponent(name)}`;
      try {
        const phase = (await api.json<PodObject | null>({ path: one, timeoutMs: podTimeoutMs, signal }))
          ?.status?.phase;
        return phase !== 'Succeeded' && phase !== 'Failed';
      } catch (error) {
        // The reason too: a proxy that does not know the path answers 404 without one.
        if (error instanceof KubeError && error.status === 404 && error.reason === 'NotFound') return false;
        throw error;
      }
    },

    // A list of one: with the label, which a pod of this name may have lost.
    async read(name, signal) {
      return (await readPage({ fieldSelector: `metadata.name=${name}` }, signal, podTimeoutMs)).pods[0];
    },

    async *watch(version, signal) {
      const query = {
        watch: 'true',
        labelSelector,
        resourceVersion: version,
        allowWatchBookmarks: 'true',
        // 5 to 10 minutes, as client-go asks for: not all watches of a fleet end at the same moment.
        timeoutSeconds: String(Math.floor(300 + 300 * clock.random())),
      };
      try {
        for await (const line of api.lines({ path, query, timeoutMs: silenceMs, signal })) {
          yield changeOf(parseEvent(line), observe);
        }
      } catch (error) {
        throw isExpired(error) ? new VersionExpired(`version ${version} is too old to watch from`) : error;
      }
    },
  };
}

const textOf = (value: unknown) => (typeof value === 'string' ? value : undefined);
const isExpired = (error: unknown) => error instanceof KubeError && error.status === 410;

function parseEvent(line: string): WatchEvent {
  try {
    const event: unknown = JSON.parse(line);
    if (typeof event === 'object' && event !== null) return event;
  } catch {
    // Told below.
  }
  throw new KubeError(`the watch sent a line that is no event: ${line.slice(0, 100)}`);
}

function changeOf({ type, object }: WatchEvent, observe: (o: unknown) => ClusterPod | undefined): PodChange {
  if (type === 'ERROR') {
    const code = typeof object?.code === 'number' ? object.code : undefined;
    const said = textOf(object?.message)?.slice(0, longestMessage) ?? String(code);
    throw new KubeError(`the watch ended with an error: ${said}`, code);
  }
  const version = object?.metadata?.resourceVersion;
  if (typeof version !== 'string')
    throw new KubeError(`the watch sent an event without a version: ${textOf(type)?.slice(0, 100)}`);
  if (type === 'BOOKMARK') return { version };
  const pod = observe(object);
  if (!pod) return { version };
  return { version, pod: type === 'DELETED' ? { ...pod, state: 'gone' } : pod };
}

/**
 * The voice agents of a Kubernetes namespace: listed in pages, then watched from the version of the list.
 *
 * A watch requests bookmarks, so that a quiet one can still be resumed. It ends in one of three ways: the server ends it
 * (resume from the last version), the version is too old (`VersionExpired`: list again), or it breaks or times out (an
 * error). The caller decides when to retry.
 */
import type { Clock } from '../../clock.js';
import type { Logger } from '../../observe/log.js';
import { type ClusterPod, type PodChange, type PodSource, VersionExpired } from '../pods.js';
import { type KubeApi, KubeError } from './api.js';
import { observePod } from './pods.js';

/**
 * As kubectl: a page of large pods is about 7 MB, of which one pod at a time is in memory. A page that is larger than a
 * response may be is requested again with a tenth of the pods.
 */
const maxPageSize = 500;
const pageTimeoutMs = 15_000;
const podTimeoutMs = 3000;
/** A server with more pods never ends its list. */
const maxPods = 1_000_000;
/** A list whose pages expire starts again; an API server that cannot keep one for a minute is broken. */
const maxLists = 3;
/** A line of a watch may have 16 MB. */
const maxMessageLength = 500;

export interface KubernetesSourceOptions {
  api: KubeApi;
  namespace: string;
  labelSelector: string;
  /** A watch without an event for this long is closed; on a quiet cluster bookmarks are up to 120 s apart. */
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

  /** Later lists have pages as small as this one needed. */
  let pageSize = maxPageSize;

  const warnOfInvalid = (pods: number) => {
    if (pods > 0) log.warn({ pods }, 'ignoring pods with invalid names');
  };

  async function readPage(more: Record<string, string>, signal: AbortSignal, timeoutMs = pageTimeoutMs) {
    const query = { labelSelector, ...more };
    const pods: ClusterPod[] = [];
    let invalid = 0;
    const page = await api.items<PodListPage | null>({ path, query, timeoutMs, signal }, (item) => {
      const pod = observePod(item);
      if (pod) pods.push(pod);
      else invalid += 1;
    });
    if (!Array.isArray(page?.items)) throw new KubeError(`the response to GET ${path} is not a list of pods`);
    return { metadata: page.metadata, pods, invalid };
  }

  async function readListPage(more: Record<string, string>, signal: AbortSignal) {
    for (;;) {
      try {
        return await readPage({ limit: String(pageSize), ...more }, signal);
      } catch (error) {
        const isTooLarge = error instanceof KubeError && error.reason === 'TooLarge';
        if (!isTooLarge || pageSize === 1) throw error;
        pageSize = Math.ceil(pageSize / 10);
        log.warn({ err: error, page_size: pageSize }, 'page of pods too large; listing with smaller pages');
      }
    }
  }

  async function listOnce(signal: AbortSignal) {
    const pods: ClusterPod[] = [];
    let invalid = 0;
    let next = '';
    let version: string | undefined;
    for (let requested = pageSize; ; requested += pageSize) {
      const page = await readListPage(next === '' ? {} : { continue: next }, signal);
      pods.push(...page.pods);
      invalid += page.invalid;
      // Later pages show the same version as the first.
      version ??= textOf(page.metadata?.resourceVersion);
      next = textOf(page.metadata?.continue) ?? '';
      if (next === '') {
        warnOfInvalid(invalid);
        return { pods, version: version ?? '' };
      }
      if (requested >= maxPods) throw new KubeError(`the list at ${path} has no end after ${requested} pods`);
    }
  }

  return {
    name: 'kubernetes',

    async list(signal) {
      for (let tries = 1; ; tries += 1) {
        try {
          return await listOnce(signal);
        } catch (error) {
          if (!isExpired(error) || tries >= maxLists) throw error;
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
        // With the reason: a proxy that does not know the path answers 404 without one.
        if (error instanceof KubeError && error.status === 404 && error.reason === 'NotFound') return false;
        throw error;
      }
    },

    // A list of one, so that the label selector applies: the pod may have lost its label.
    async read(name, signal) {
      return (await readPage({ fieldSelector: `metadata.name=${name}` }, signal, podTimeoutMs)).pods[0];
    },

    async *watch(version, signal) {
      const query = {
        watch: 'true',
        labelSelector,
        resourceVersion: version,
        allowWatchBookmarks: 'true',
        // 5 to 10 minutes, as client-go: the watches of a fleet do not end at the same time.
        timeoutSeconds: String(Math.floor(300 + 300 * clock.random())),
      };
      try {
        for await (const line of api.lines({ path, query, timeoutMs: silenceMs, signal })) {
          yield changeOf(parseEvent(line), () => warnOfInvalid(1));
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
    // Thrown below.
  }
  throw new KubeError(`the watch sent a line that is not an event: ${line.slice(0, 100)}`);
}

function changeOf({ type, object }: WatchEvent, onInvalid: () => void): PodChange {
  if (type === 'ERROR') {
    const code = typeof object?.code === 'number' ? object.code : undefined;
    const said = textOf(object?.message)?.slice(0, maxMessageLength) ?? String(code);
    throw new KubeError(`the watch ended with an error: ${said}`, code);
  }
  const version = object?.metadata?.resourceVersion;
  if (typeof version !== 'string')
    throw new KubeError(`the watch sent an event without a version: ${textOf(type)?.slice(0, 100)}`);
  if (type === 'BOOKMARK') return { version };
  const pod = observePod(object);
  if (!pod) {
    onInvalid();
    return { version };
  }
  return { version, pod: type === 'DELETED' ? { ...pod, state: 'gone' } : pod };
}

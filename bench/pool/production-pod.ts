/** A pod in the size of production: about 13 KB, most of which no client reads. The simulated ones have 3 KB. */
import type { PodSpec } from '../../src/cluster/simulator/objects.js';
import { specOf, statusOf } from '../../src/cluster/simulator/pod-manifest.js';
import type { NewPod } from '../../src/cluster/simulator/pods.js';

export function productionPod(name: string): NewPod {
  const { spec, annotations } = productionSize(specOf({ name }));
  const now = '2026-01-02T03:04:05Z';
  const status = statusOf(spec.containers[0]?.image ?? '', now);
  return { name, spec, annotations, managedFields: managedFieldsOf({ annotations, spec, status }, now) };
}

/** Adds environment, volumes, and the annotations of network and deployment tools. */
function productionSize(spec: PodSpec): {
  spec: PodSpec;
  annotations: Record<string, string>;
} {
  const numbered = <T>(count: number, of: (i: number) => T) => Array.from({ length: count }, (_, i) => of(i));
  const env = numbered(15, (i) => ({
    name: `VOICE_SETTING_${i}`,
    valueFrom: { secretKeyRef: { name: 'voice-agent-settings', key: `setting-${i}` } },
  }));
  const volumes = numbered(6, (i) => ({
    name: `models-${i}`,
    configMap: { name: `voice-agent-models-${i}`, defaultMode: 420, optional: false },
  }));
  const mounts = volumes.map(({ name }) => ({ name, readOnly: true, mountPath: `/etc/voice-agent/${name}` }));
  return {
    spec: {
      ...spec,
      volumes: [...((spec.volumes as object[] | undefined) ?? []), ...volumes],
      containers: spec.containers.map((container) => ({
        ...container,
        env: [...((container.env as object[] | undefined) ?? []), ...env],
        volumeMounts: [...((container.volumeMounts as object[] | undefined) ?? []), ...mounts],
      })),
    },
    annotations: {
      'k8s.v1.cni.cncf.io/network-status': JSON.stringify(
        numbered(2, (i) => ({ name: `net-${i}`, interface: `eth${i}`, ips: ['10.0.0.1'], default: i === 0 })),
      ),
      'kubectl.kubernetes.io/last-applied-configuration': JSON.stringify({ env: env }),
      'checksum/config': 'c0ffee'.repeat(10),
    },
  };
}

/** Which program owns which field, as the API server records it: a third of a real pod. */
function managedFieldsOf(
  { annotations, spec, status }: { annotations: unknown; spec: unknown; status: unknown },
  now: string,
): object[] {
  const entry = { operation: 'Update', apiVersion: 'v1', time: now, fieldsType: 'FieldsV1' };
  return [
    {
      manager: 'kube-controller-manager',
      ...entry,
      fieldsV1: fieldsOf({ metadata: { annotations }, spec }),
    },
    { manager: 'kubelet', ...entry, fieldsV1: fieldsOf({ status }), subresource: 'status' },
  ];
}

/** A list of objects has an entry per key; other lists and values are owned as a whole. */
function fieldsOf(value: unknown): object {
  if (typeof value !== 'object' || value === null) return {};
  if (!Array.isArray(value))
    return Object.fromEntries(Object.entries(value).map(([name, of]) => [`f:${name}`, fieldsOf(of)]));
  const keyed = value.flatMap((item: Readonly<Record<string, unknown>>) => {
    const key = ['name', 'ip', 'type', 'key', 'mountPath'].find((field) => typeof item?.[field] === 'string');
    return key === undefined
      ? []
      : [[`k:${JSON.stringify({ [key]: item[key] })}`, { '.': {}, ...fieldsOf(item) }]];
  });
  return keyed.length === 0 ? {} : { '.': {}, ...Object.fromEntries(keyed) };
}

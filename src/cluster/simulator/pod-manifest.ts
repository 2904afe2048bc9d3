/** The spec and status of a new voice-agent pod, in the size of a real one: about 3 KB. */
import type { Pod, PodCondition, PodStatus } from './objects.js';

export function specOf({
  name,
  image = 'registry.example/voice-agent:1',
  graceSeconds = 30,
}: {
  name: string;
  image?: string;
  graceSeconds?: number;
}): Pod['spec'] {
  return {
    volumes: [
      {
        name: 'kube-api-access',
        projected: {
          sources: [
            { serviceAccountToken: { expirationSeconds: 3607, path: 'token' } },
            { configMap: { name: 'kube-root-ca.crt', items: [{ key: 'ca.crt', path: 'ca.crt' }] } },
          ],
          defaultMode: 420,
        },
      },
    ],
    containers: [
      {
        name: 'agent',
        image,
        ports: [{ name: 'ws', containerPort: 8765, protocol: 'TCP' }],
        env: [
          { name: 'POD_NAME', valueFrom: { fieldRef: { apiVersion: 'v1', fieldPath: 'metadata.name' } } },
          { name: 'SMART_ROUTER_URL', value: 'http://smart-router:8080' },
        ],
        resources: { limits: { cpu: '2', memory: '2Gi' }, requests: { cpu: '500m', memory: '1Gi' } },
        volumeMounts: [
          {
            name: 'kube-api-access',
            readOnly: true,
            mountPath: '/var/run/secrets/kubernetes.io/serviceaccount',
          },
        ],
        readinessProbe: {
          httpGet: { path: '/ready', port: 'ws', scheme: 'HTTP' },
          timeoutSeconds: 1,
          periodSeconds: 5,
          successThreshold: 1,
          failureThreshold: 3,
        },
        lifecycle: { preStop: { exec: { command: ['drain', '--wait'] } } },
        terminationMessagePath: '/dev/termination-log',
        terminationMessagePolicy: 'File',
        imagePullPolicy: 'IfNotPresent',
      },
    ],
    restartPolicy: 'Always',
    terminationGracePeriodSeconds: graceSeconds,
    dnsPolicy: 'ClusterFirst',
    serviceAccountName: 'voice-agent',
    nodeName: 'node-1',
    hostname: name,
    securityContext: {},
    schedulerName: 'default-scheduler',
    tolerations: ['not-ready', 'unreachable'].map((key) => ({
      key: `node.kubernetes.io/${key}`,
      operator: 'Exists',
      effect: 'NoExecute',
      tolerationSeconds: 300,
    })),
    priority: 0,
    enableServiceLinks: true,
    preemptionPolicy: 'PreemptLowerPriority',
  };
}

export function statusOf(image: string, now: string): PodStatus {
  const condition = (type: string, holds: boolean): PodCondition => ({
    type,
    status: holds ? 'True' : 'False',
    lastProbeTime: null,
    lastTransitionTime: now,
    ...(holds ? {} : { reason: 'ContainersNotReady', message: 'containers with unready status: [agent]' }),
  });
  return {
    phase: 'Pending',
    conditions: [
      condition('PodReadyToStartContainers', true),
      condition('Initialized', true),
      condition('Ready', false),
      condition('ContainersReady', false),
      condition('PodScheduled', true),
    ],
    hostIP: '192.168.0.1',
    startTime: now,
    containerStatuses: [
      {
        name: 'agent',
        state: { waiting: { reason: 'ContainerCreating' } },
        lastState: {},
        ready: false,
        restartCount: 0,
        image,
        imageID: `${image}@sha256:${'5a'.repeat(32)}`,
        started: false,
      },
    ],
    qosClass: 'Burstable',
  };
}

/**
 * Adds what else a pod of production has: environment, volumes, and the annotations of network and deployment tools.
 * With them and its managed fields a pod has about 13 KB, most of which no client reads.
 */
export function productionSize(spec: Pod['spec']): {
  spec: Pod['spec'];
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
export function managedFieldsOf(
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

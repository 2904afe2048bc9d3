/** The spec and status of a new voice-agent pod, in the size of a real one: about 3 KB. */
import type { Pod, PodCondition, PodStatus } from './objects.js';

export function specOf({
  name,
  image = 'registry.example/voice-agent:1',
  graceSeconds = 30,
}: {
  name: string;
  image?: string | undefined;
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

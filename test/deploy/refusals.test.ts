/** Helm refuses invalid values before it installs anything, and the message says what to do. */
import { expect, it } from 'vitest';
import { configTable } from '../../src/config/config.js';
import { chart, describeWith, run, setArgs, template } from './manifests.js';

/** Values that hold alone; each case adds what makes them wrong. Patterns: helm 3 and 4 word the schema differently. */
const cases: [what: string, base: string, sets: string[], message: string | RegExp][] = [
  ['no image', 'minimal', ['image.repository=""'], 'image.repository is empty: build the image'],
  [
    'nowhere to send the audio',
    'minimal',
    ['config.VOICE_AGENT_BASE_URL=""'],
    'config.VOICE_AGENT_BASE_URL is empty: set it to the address for the audio of calls',
  ],
  [
    'no Redis',
    'minimal',
    ['secret.existingName=""'],
    'no Redis: set secret.existingName to a Secret with the key REDIS_URL',
  ],
  ['no API key', 'tryout', ['secret.data.SMART_ROUTER_API_KEY=""'], 'no SMART_ROUTER_API_KEY: set'],
  ['no admin key', 'tryout', ['secret.data.SMART_ROUTER_ADMIN_KEY=""'], 'no SMART_ROUTER_ADMIN_KEY: set'],
  ['a short key', 'tryout', ['secret.data.SMART_ROUTER_API_KEY="short"'], 'fewer than 16 characters'],
  [
    'one key for both',
    'tryout',
    ['secret.data.SMART_ROUTER_ADMIN_KEY="example-api-key-0001"'],
    'every voice agent would be an operator',
  ],
  [
    'an embedded Redis with several replicas',
    'tryout',
    ['secret.data.REDIS_URL="embedded"', 'replicaCount=3', 'leaderElection.enabled=true'],
    'a store of its own and give the same pod to two calls',
  ],
  [
    'an embedded Redis with one replica, which has two during a roll',
    'tryout',
    ['secret.data.REDIS_URL="embedded"'],
    'during a roll also the new one',
  ],
  [
    'a Redis port that the network policy forbids',
    'tryout',
    ['secret.data.REDIS_URL="rediss://user:pw@redis.example.com:6380/1"'],
    'REDIS_URL uses port 6380, which the NetworkPolicy forbids',
  ],
  [
    'one forbidden port among several',
    'tryout',
    ['secret.data.REDIS_URL="redis+cluster://a:6379,b:7001?tls=true"'],
    'REDIS_URL uses port 7001',
  ],
  [
    'Postgres that the network policy forbids',
    'tryout',
    ['secret.data.DATABASE_URL="postgres://pg/records"'],
    'set networkPolicy.egress.postgres.enabled',
  ],
  [
    'a lease as short as the renew deadline',
    'minimal',
    ['leaderElection.leaseDurationSeconds=10'],
    'leaderElection.leaseDurationSeconds (10) must be longer than renewDeadlineSeconds (10), or two replicas lead at once',
  ],
  [
    'a renew deadline of 1.2 retries',
    'minimal',
    ['leaderElection.renewDeadlineSeconds=12', 'leaderElection.retryPeriodSeconds=10'],
    'leaderElection.renewDeadlineSeconds (12) must be longer than 1.2 * retryPeriodSeconds (10)',
  ],
  [
    'several replicas without an election',
    'minimal',
    ['leaderElection.enabled=false'],
    'leaderElection.enabled is false with more than one replica',
  ],
  [
    'an autoscaler without an election',
    'tryout',
    ['autoscaling.enabled=true'],
    'leaderElection.enabled is false with more than one replica',
  ],
  [
    'an autoscaler with its bounds swapped',
    'minimal',
    ['autoscaling.enabled=true', 'autoscaling.maxReplicas=2'],
    'autoscaling.minReplicas is greater than maxReplicas',
  ],
  [
    'an ingress without a name',
    'minimal',
    ['ingress.enabled=true', 'config.PUBLIC_URL="https://r.example.com"'],
    'ingress.enabled without ingress.host',
  ],
  [
    'an ingress behind which no signature holds',
    'minimal',
    ['ingress.enabled=true', 'ingress.host="r.example.com"'],
    'every provider signature would be wrong',
  ],
  [
    'an ingress that has another name than the one providers sign',
    'minimal',
    [
      'ingress.enabled=true',
      'ingress.host="r.example.com"',
      'config.PUBLIC_URL="https://router.example.com:8443/voice"',
    ],
    'ingress.host (r.example.com) is not the name in config.PUBLIC_URL (router.example.com)',
  ],
  [
    'leases longer than calls are remembered',
    'minimal',
    ['config.LEASE_TTL="2h"'],
    'config.CALL_INFO_TTL (1h) must be at least LEASE_TTL (2h) + 2 * CLEANUP_INTERVAL (30s)',
  ],
  [
    'a second too little to remember calls',
    'minimal',
    ['config.CLEANUP_INTERVAL="1m"', 'config.LEASE_TTL="59m"', 'config.CALL_INFO_TTL="1h0.5m29.999s"'],
    'config.CALL_INFO_TTL (1h0.5m29.999s) must be at least',
  ],
  [
    'a no-show later than the end of the lease',
    'minimal',
    ['config.NO_SHOW_TIMEOUT="15m"'],
    'config.NO_SHOW_TIMEOUT (15m) must be shorter than LEASE_TTL (15m), or off',
  ],
  [
    'a variable of the chart’s own',
    'minimal',
    ['extraEnv=[{"name":"HTTP_PORT","value":"80"}]'],
    'extraEnv sets HTTP_PORT, which the chart sets itself',
  ],
  [
    'a label by which the pods are selected',
    'minimal',
    ['podLabels={"app.kubernetes.io/name":"x","team":"y"}'],
    'podLabels sets app.kubernetes.io/name, by which Deployment and Services know their pods: leave it out',
  ],
  [
    'the other label by which the pods are selected',
    'minimal',
    ['podLabels={"app.kubernetes.io/instance":"x"}'],
    'podLabels sets app.kubernetes.io/instance, by which',
  ],
  [
    'an annotation of the chart’s own',
    'tryout',
    ['podAnnotations={"checksum/secret":"x"}'],
    'podAnnotations sets checksum/secret, which the chart sets itself',
  ],
  [
    'a label of the monitor that the chart gives it',
    'everything',
    ['serviceMonitor.labels={"helm.sh/chart":"x"}'],
    'serviceMonitor.labels sets helm.sh/chart, which the chart sets itself',
  ],
  [
    'alerts that the network policy forbids',
    'tryout',
    ['secret.data.PAGERDUTY_ROUTING_KEY="example"'],
    'secret.data.PAGERDUTY_ROUTING_KEY is set, but the NetworkPolicy forbids connections to the web: set networkPolicy.egress.web.enabled',
  ],
  [
    'an embedded database',
    'everything',
    ['secret.data.DATABASE_URL="embedded"'],
    /secret[./]data[./]DATABASE_URL/,
  ],
  ['a misspelt value', 'minimal', ['replicas=5'], /replicas'? (is )?not allowed/],
  ['a misspelt variable', 'minimal', ['config.LEASE_TLL="15m"'], /LEASE_TLL'? (is )?not allowed/],
  [
    'a secret among the plain variables',
    'minimal',
    ['config.REDIS_URL="redis://x"'],
    /REDIS_URL'? (is )?not allowed/,
  ],
  ['a number without a unit', 'minimal', ['config.LEASE_TTL="900"'], /config[./]LEASE_TTL/],
  ['the tag latest', 'minimal', ['image.tag="latest"'], /image[./]tag/],
  ['no replica', 'minimal', ['replicaCount=0'], /replicaCount/],
];

describeWith('helm', 'the chart', () => {
  it.each(cases)('refuses %s', (_, base, sets, message) => {
    const { code, stdout, stderr } = template(base, ...sets);
    expect(stderr).toMatch(message);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
  });

  it('lists all missing values at once, one line each, without secrets', () => {
    const sets = ['secret.data.SMART_ROUTER_API_KEY="short-key"'];
    const { stderr } = run('helm', 'template', 'calls', chart, ...setArgs(sets));
    expect(stderr.match(/^ {2}- /gm)).toHaveLength(5);
    expect(stderr).not.toContain('short-key');
  });

  it('accepts lease times that the router accepts, with its defaults for missing ones', () => {
    const fallback = (name: string) => configTable.find((field) => field.name === name)?.fallback;
    expect(['LEASE_TTL', 'CLEANUP_INTERVAL', 'CALL_INFO_TTL', 'NO_SHOW_TIMEOUT'].map(fallback)).toEqual([
      '15m',
      '30s',
      '1h',
      'off',
    ]);
    const accepted = [
      ['config.LEASE_TTL="59m"'],
      ['config.LEASE_TTL="2h"', 'config.CALL_INFO_TTL="121m"'],
      ['config.CLEANUP_INTERVAL="1m"', 'config.LEASE_TTL="59m"', 'config.CALL_INFO_TTL="1h0.5m30000ms"'],
      ['config.NO_SHOW_TIMEOUT="0"'],
      ['config.NO_SHOW_TIMEOUT="14m59s"'],
    ];
    expect(accepted.map((sets) => template('minimal', ...sets).stderr)).toEqual(accepted.map(() => ''));
  });

  it('accepts an ingress with the name in PUBLIC_URL, in any spelling', () => {
    const ingress = ['ingress.enabled=true', 'ingress.host="router.example.com"'];
    for (const url of ['https://Router.example.com:8443/voice', 'https://u:p@router.example.com'])
      expect(template('minimal', ...ingress, `config.PUBLIC_URL="${url}"`).stderr).toBe('');
  });

  it('accepts a Redis port that the NetworkPolicy allows', () => {
    const url = 'redis+sentinel://u:6380@a:26379,b:26379/name?tls=true';
    expect(template('tryout', `secret.data.REDIS_URL="${url}"`).code).toBe(0);
  });
});

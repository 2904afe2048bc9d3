/**
 * The conformance suite: what every client of the router must do, written once as data in cases.json.
 *
 * A case is a list of steps against a real router on a real store, behind a proxy that injects faults. Operations are
 * abstract: a driver translates them for one client (the TypeScript client, the Python client, the sidecar). A driver
 * lists the operations it supports and runs the cases that need no others. Each case names its drivers, and the suite
 * fails if a driver runs more or fewer cases than name it, so that no case is skipped unnoticed.
 *
 * To add a driver: implement `Driver`, call `conformance(driver)` in a test file, and add its name to the cases.
 */

/** The calls of telephony code, on the client. */
const clientOperations = [
  /** `configure`: the driver accepts the options under `client`. Not a step. */
  'configure',
  /** call, merchant?, wait_ms? -> pod_name, fence, was_existing, fallback, ws_url, has_waited */
  'allocate',
  /** call, fence? -> released, and reason if it is false: already_ended, not_ours, was_waiting, fallback */
  'release',
  /** call, fence? -> {} */
  'renew',
  /** pod, calls -> renewed, adopted, ended, conflicts */
  'report',
  /** pod, wait_ms? -> active_calls */
  'drain',
  /** pod -> {} */
  'undrain',
  /** -> state: closed, open, half_open */
  'breaker',
  /** call, fence, period_ms: holds the call and renews it in the background -> {} */
  'hold',
  /** call: ends what `hold` began -> as release */
  'end_hold',
] as const;

/** What happens in a voice agent: the agent of the case reports in the background from start to end. */
const agentOperations = [
  /** `agent`: the driver starts the agent under `agent`. Not a step. */
  'agent',
  /** call, fence?: the call has arrived -> {} */
  'begin_call',
  /** call: the call has ended -> {} */
  'end_call',
  /** -> calls: the SIDs that the agent holds, sorted */
  'calls',
  /** call: waits until the router says that the call is not this pod's -> reason: ended, stale_fence, conflict */
  'lost',
  /** wait_ms: no new calls; returns when the last call has ended -> active_calls */
  'drain_agent',
  /** Sends SIGTERM to the agent's process -> {} */
  'terminate',
  /** Waits for the end of the agent's process -> {} */
  'exited',
] as const;

export const operations = [...clientOperations, ...agentOperations] as const;
export type Operation = (typeof operations)[number];

/** Options of the client; a driver that supports `configure` must know all of them. */
export interface ClientSettings {
  api_key?: string;
  timeout_ms?: number;
  retries?: number;
  backoff_base_ms?: number;
  breaker_failures?: number;
  breaker_open_ms?: number;
  breaker_trials?: number;
  fallback_url?: string;
}

export interface AgentSettings {
  pod: string;
  interval_ms: number;
}

export type Fields = Record<string, unknown>;

/**
 * Runs an operation. `expect` names fields of the outcome: equal to the value, or to `$name.field` of an earlier outcome
 * saved as `name`. A failed operation has the outcome `{ error: code, reason?, attempts? }`; without `expect` it must not
 * fail. With `background` the step only starts the operation.
 */
export interface OperationStep {
  op: Operation;
  args?: Fields;
  expect?: Fields;
  save?: string;
  background?: string;
}

/** Repeats an operation until its outcome has these fields. */
export interface UntilOperationStep {
  until_op: Operation;
  expect: Fields;
}

/** The background operation is still running. */
export interface PendingStep {
  pending: string;
}

/** Waits for a background operation. */
export interface JoinStep {
  join: string;
  expect?: Fields;
}

/**
 * The proxy fails the next `times` (1) requests to `on` (any): see fault-proxy.ts. `refuse` lasts until `none`, which ends
 * all faults.
 */
export interface FaultStep {
  fault: 'refuse' | 'none' | FaultName;
  on?: Route;
  times?: number;
  /** With `answer`. */
  status?: number;
  code?: string;
  retry_after?: number;
}

export type FaultName =
  | 'reset'
  | 'lose_reply'
  | 'truncate'
  | 'hang'
  | 'garbage'
  | 'redirect'
  | 'echo'
  | 'answer';
export type Route = 'allocate' | 'release' | 'renew' | 'report' | 'drain' | 'undrain';

/**
 * Restarts the router, changes the replication id of its store as a failover does (and waits until the router has noticed), or
 * acts as telephony code directly on the router, without the proxy.
 */
export type RouterStep =
  | { router: 'restart' }
  | { router: 'fail_over'; call: string }
  | { router: 'allocate'; call: string; save?: string }
  | { router: 'release'; call: string };

/**
 * Waits until the router's state is so: exactly these live calls; the pod drains or not; the lease of every live call was
 * renewed this many more times (the client may not have the answer to the last renewal yet); this many reports have reached
 * the proxy since the failover.
 */
export interface UntilStep {
  until: { live?: string[]; draining?: boolean; renewals?: number; reports?: number };
}

/** How many requests to this route have reached the proxy in this case, and fields of the last one's body. */
export interface RequestsStep {
  requests: { on: Route; count?: number; at_least?: number; body?: Fields; has?: string[] };
}

export type Step =
  | OperationStep
  | UntilOperationStep
  | PendingStep
  | JoinStep
  | FaultStep
  | RouterStep
  | UntilStep
  | RequestsStep;

export interface Case {
  name: string;
  /** The drivers that must run it: exactly those that support its operations. */
  drivers: string[];
  client?: ClientSettings;
  agent?: AgentSettings;
  steps: Step[];
}

/** The operations that a case needs. */
export function operationsOf({ client, agent, steps }: Case): Operation[] {
  const needed = new Set(
    steps.flatMap((step) => ('op' in step ? [step.op] : 'until_op' in step ? [step.until_op] : [])),
  );
  if (client) needed.add('configure');
  if (agent) needed.add('agent');
  return [...needed];
}

// --- Drivers ---

/** What a driver connects to. */
export interface Target {
  /** The proxy in front of the router. */
  url: string;
  apiKey: string;
  client: ClientSettings;
  agent: AgentSettings | undefined;
}

export interface Session {
  /** Resolves to the outcome; `{ error: code }` for an operation that failed. */
  run(op: Operation, args: Fields): Promise<Fields>;
  /** Ends the client and the agent; releases nothing. */
  close(): Promise<void>;
}

export interface Driver {
  /** As the cases name it. */
  name: string;
  /** If several drivers share a name. */
  title?: string;
  operations: readonly Operation[];
  /** Starts a client, and the agent if the case has one. */
  open(target: Target): Promise<Session>;
  /** After the last case. */
  stop?(): Promise<void>;
}

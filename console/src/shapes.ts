/** What the router answers with; see docs/api.md. */
export interface Session {
  required: boolean;
  signed_in: boolean;
  expires_at: string | null;
  version: string;
}

export interface Pool {
  type: 'exclusive' | 'shared' | 'gone' | string;
  assigned: number;
  available: number;
  active_calls: number;
  capacity: number;
}

export interface Loop {
  name: string;
  running: boolean;
  crashes: number;
  last_error: string | null;
}

export interface Status {
  status: 'up' | 'down';
  version: string;
  pools: Record<string, Pool>;
  active_calls: number | null;
  removals_held: number | null;
  is_leader: boolean;
  leader: string | null;
  election: { lock: string; last_error: string | null };
  loops: Loop[];
  records: { database: 'up' | 'down'; paused: boolean; braked: boolean; error: string | null } | null;
  tier_version: number;
  tier_config_differs: boolean;
  store_error: string | null;
}

export interface Lease {
  call_sid: string;
  /** Null: a call we heard of in the stream, before it was read. */
  lease_expires_at: string | null;
}

export interface Pod {
  pod_name: string;
  tier: string;
  draining_until: string | null;
  blocked_by: string | null;
  leases: Lease[];
  /** Undefined from a router that does not tell. */
  last_report_at?: string | null;
  uid: string;
  started_at: string | null;
}

export interface Call {
  call_sid: string;
  pod_name: string;
  source_pool: string;
  merchant_id: string;
  provider: string;
  flow: string;
  template: string;
  allocated_at: string;
  renewed_at: string | null;
  lease_expires_at: string | null;
  fence: number;
}

export interface RouterEvent {
  id: string;
  type: string;
  at: string;
  call?: string;
  pod?: string;
  pool?: string;
  merchant?: string;
  reason?: string;
  by?: string;
  [field: string]: string | undefined;
}

export interface Replica {
  name: string;
  version: string;
  is_leader: boolean;
  started_at: string;
  seen_at: string;
}

export interface HistoryPoint {
  at: string;
  allocated: number | null;
  released: number | null;
  no_pods: number | null;
  errors: number | null;
  /** Absent: a router from before it. */
  shed?: number | null;
  p50_ms: number | null;
  p99_ms: number | null;
  active_calls: number | null;
  available: number | null;
  assigned: number | null;
  capacity: number | null;
  recovered: number | null;
  lost: number | null;
  records?: Record<string, { completed: number; failed: number; recovered: number }> | null;
}

export interface History {
  step_seconds: number;
  replicas: Replica[];
  points: HistoryPoint[];
}

export interface Alert {
  name: string;
  severity: 'warning' | 'critical' | 'page';
  summary: string;
  since: string;
  workflow: string | null;
  runbook: string;
}

export interface Recoveries {
  since: string;
  calls: { recovered: number; lost: number };
  pods: { recovered: number };
  records: { workflow: string; reason: string; outcome: string; records: number }[] | null;
  items: RecoveryItem[];
}

export interface RecoveryItem {
  at: string;
  kind: 'call' | 'pod' | 'record';
  id: string;
  place: string;
  reason: string;
  outcome: string;
  age_seconds: number | null;
  detail: string | null;
}

export interface WorkflowNumbers {
  name: string;
  queued: number;
  processing: number;
  stuck: number;
  /** Of those, left for a person. */
  held?: number;
  failed: number;
  oldest_queued_seconds: number | null;
  oldest_stuck_seconds: number | null;
  processing_p99_seconds: number | null;
  advice: string[];
}

export interface FailedRecords {
  records: { id: string; error: string | null; failed_seconds: number | null }[];
}

export interface HandledRecord {
  id: string;
  outcome: string;
  reason: string;
  resets: number;
  stuck_seconds: number | null;
  worker: string | null;
  trace: string | null;
}

export interface Handled {
  workflow: string;
  dry_run: boolean;
  requeued: number;
  failed: number;
  held: number;
  skipped: number;
  total: number;
  records: HandledRecord[];
}

export interface Tier {
  type: string;
  target: number;
  max_concurrent?: number;
}

export interface Tiers {
  tiers: Record<string, Tier>;
  default_chain: string[];
  version: number;
  warnings?: string[];
}

export interface Skipped {
  step: string;
  reason: string;
}

export interface Merchant {
  merchant_id: string;
  tier?: string;
  pool?: string;
  fallback?: string[];
  chain: string[];
  skipped: Skipped[];
}

export interface Preview {
  valid: boolean;
  problems: string[];
  warnings: string[];
  chains: { merchant_id: string | null; chain: string[]; skipped: Skipped[] }[];
}

export interface Timeline {
  call_sid: string;
  live: Call | null;
  events: RouterEvent[];
  is_complete: boolean;
}

export interface EventPage {
  events: RouterEvent[];
  before: string | null;
  kept_since: string | null;
}

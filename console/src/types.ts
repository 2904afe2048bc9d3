/** The answers of the router, from the schemas that validate and document them. Types only: nothing of them is bundled. */
import type { Static } from 'typebox';
import type * as operatorSchemas from '../../src/http/operator-schemas.js';
import type * as recordSchemas from '../../src/http/record-schemas.js';
import type * as schemas from '../../src/http/schemas.js';

export type Session = Static<typeof operatorSchemas.SessionState>;
export type Status = Static<typeof schemas.Status>;
export type Pool = Static<typeof schemas.Pool>;
export type Released = Static<typeof schemas.Released>;
export type Tiers = Static<typeof operatorSchemas.Tiers>;
export type Tier = Tiers['tiers'][string];
export type Merchant = Static<typeof operatorSchemas.Merchant>;
export type Skipped = Merchant['skipped'][number];
export type Explained = Static<typeof operatorSchemas.Explained>;
export type Preview = Static<typeof operatorSchemas.TiersPreview>;
export type History = Static<typeof operatorSchemas.History>;
export type HistoryPoint = History['points'][number];
export type Replica = History['replicas'][number];
export type Alert = Static<typeof operatorSchemas.AlertList>['alerts'][number];
export type Recoveries = Static<typeof operatorSchemas.Recoveries>;
export type RecoveryItem = Recoveries['items'][number];
export type WorkflowNumbers = Static<typeof recordSchemas.RecordWorkflows>['workflows'][number];
export type FailedRecords = Static<typeof recordSchemas.FailedRecords>;
export type Handled = Static<typeof recordSchemas.HandledRecords>;
export type HandledRecord = Handled['records'][number];

type FoundEvents = Static<typeof operatorSchemas.FoundEvents>;
/** The other fields depend on the type of the event. */
export type RouterEvent = FoundEvents['events'][number] & { [field: string]: string | undefined };
export type EventPage = Omit<FoundEvents, 'events'> & { events: RouterEvent[] };

/** Null for a call from the event stream that was not read yet. */
interface LeaseEnd {
  lease_expires_at: string | null;
}
export type Call = Omit<Static<typeof schemas.Call>, 'lease_expires_at'> & LeaseEnd;
export type WaitingCall = Static<typeof schemas.WaitingCall>;
export type Timeline = Omit<Static<typeof operatorSchemas.Timeline>, 'live' | 'events'> & {
  live: Call | null;
  events: RouterEvent[];
};
export type Lease = { call_sid: string } & LeaseEnd;
type PodAnswer = Static<typeof schemas.Pod>;
/** Without the fields that follow from `leases` and `blocked_by`. */
export type Pod = Omit<
  PodAnswer,
  'leases' | 'calls' | 'is_draining' | 'has_active_lease' | 'lease_call_sid'
> & {
  leases: Lease[];
};

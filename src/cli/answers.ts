/** The answers of the API, by the schemas that the router itself serialises with; types only. */
import type { Static } from 'typebox';
import type * as recordSchemas from '../http/record-schemas.js';
import type * as schemas from '../http/schemas.js';

export type Status = Static<typeof schemas.Status>;
export type Pool = Static<typeof schemas.Pool>;
export type Pod = Static<typeof schemas.Pod>;
export type Call = Static<typeof schemas.Call>;
export type Tiers = Static<typeof schemas.Tiers>;
export type Audit = Static<typeof schemas.Audit>;
export type Removals = Static<typeof schemas.Removals>;
export type RemovalsConfirmed = Static<typeof schemas.RemovalsConfirmed>;
export type Merchant = Static<typeof schemas.Merchant>;
export type Allocated = Static<typeof schemas.Allocated>;
export type Released = Static<typeof schemas.Released>;
type Draining = Static<typeof schemas.Drained>;
/** Older routers do not say when the drain ends. */
export type Drained = Omit<Draining, 'drain_expires_at'> & Partial<Draining>;
export type Undrained = Static<typeof schemas.Undrained>;
export type RecordWorkflows = Static<typeof recordSchemas.RecordWorkflows>;
export type RecordNumbers = RecordWorkflows['workflows'][number];
export type StuckRecords = Static<typeof recordSchemas.StuckRecords>;
export type FailedRecords = Static<typeof recordSchemas.FailedRecords>;
export type RecordDocument = StuckRecords['records'][number];

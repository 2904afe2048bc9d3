/** `smart-router/records`: claims, processes, finishes and recovers rows of a team's own tables. */
export { type Clock, systemClock } from '../clock.js';
export { type Inspection, type InspectOptions, inspect } from './inspect.js';
export { notify } from './listener.js';
export { createRecordLoop, type RecordLoop, type RecordLoopOptions } from './loop.js';
export { migrate } from './migrate.js';
export type { RecordObserver } from './observer.js';
export { ClaimLost } from './record-run.js';
export { createRecovery, type Recovery, type RecoveryCounts, type RecoveryOptions } from './recovery.js';
export { type ReportOptions, type WeeklyReport, type WorkflowReport, weeklyReport } from './report.js';
export { reportMarkdown } from './report-markdown.js';
export { Reporter, type ReporterCounts, type ReporterOptions } from './reporter.js';
export type { Recovered } from './store.js';
export {
  defineWorkflow,
  type RecordContext,
  type Row,
  type Workflow,
  type WorkflowDefinition,
} from './workflow.js';

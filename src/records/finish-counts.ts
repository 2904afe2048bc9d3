/** How records ended, counted by a finisher since it was last asked. */
export interface FinishCounts {
  completed: number;
  failed: number;
  /** Failed, and queued again. */
  retried: number;
  /** The claim was lost before. */
  rejected: number;
  /** To be written later. */
  spooled: number;
  /** Left in Processing for the recovery. */
  abandoned: number;
}

export const noCounts = (): FinishCounts => ({
  ...{ completed: 0, failed: 0, retried: 0, rejected: 0, spooled: 0, abandoned: 0 },
});

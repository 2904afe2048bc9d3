/** What the record plane tells about itself; metrics listen, and a program that has none loses nothing. */
export interface RecordObserver {
  claimed?(workflow: string, records: number): void;
  finished?(workflow: string, outcome: 'completed' | 'failed', records: number): void;
  /** Finishes that came after somebody else had got the record. */
  rejected?(workflow: string, records: number): void;
  gaveBack?(workflow: string, records: number): void;
  recovered?(workflow: string, reason: string, outcome: string, records: number): void;
  session?(outcome: 'ok' | 'failed'): void;
  /** Outcomes kept aside while the database is away, and written when it is back. */
  spooled?(workflow: string, records: number): void;
  replayed?(workflow: string, records: number): void;
  /** A record that stays in Processing because not even its failure could be written. */
  zombie?(workflow: string): void;
  breaker?(isOpen: boolean): void;
  stuck?(workflow: string, records: number, oldestSeconds: number): void;
  /** Most workers fell silent at once: the fast sweep waits. */
  brake?(isHolding: boolean): void;
  processed?(workflow: string, seconds: number): void;
}

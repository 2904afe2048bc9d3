/**
 * What handlers say they are doing, kept with their claims. A note is written almost at once (a record that kills its
 * process should be found with its last words), and those that come meanwhile go together; what has been finished by
 * then needs no note.
 */
import type { Clock } from '../clock.js';
import { messageOf } from '../errors.js';
import type { Logger } from '../observe/log.js';
import type { Claim, RecordStore } from './store.js';
import type { Workflow } from './workflow.js';

const gatherMs = 20;

export class Notes {
  readonly #options: { store: RecordStore; workflow: Workflow; clock: Clock; log: Logger };
  readonly #notes = new Map<Claim, string>();
  #isWriting = false;

  constructor(options: { store: RecordStore; workflow: Workflow; clock: Clock; log: Logger }) {
    this.#options = options;
  }

  add(claim: Claim, note: string): void {
    this.#notes.set(claim, note);
    if (this.#isWriting) return;
    this.#isWriting = true;
    this.#options.clock.after(gatherMs, () => void this.#write(), { unref: true });
  }

  drop(claim: Claim): void {
    this.#notes.delete(claim);
  }

  async #write(): Promise<void> {
    const { store, log, workflow } = this.#options;
    while (this.#notes.size > 0) {
      const notes = [...this.#notes].map(([{ id, token }, note]) => ({ id, token, note }));
      this.#notes.clear();
      await store.trace(notes).catch((error: unknown) => {
        log.debug({ workflow: workflow.name, reason: messageOf(error) }, 'notes could not be kept');
      });
    }
    this.#isWriting = false;
  }
}

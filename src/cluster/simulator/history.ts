/**
 * The latest changes of one resource, oldest first, in a ring: what a watch replays and what a snapshot undoes.
 * A version older than the ring is expired; whoever holds one must list again.
 */
import type { Labels } from './objects.js';

/** One state of one object. The text is the only copy: it is written once and sent to everybody. */
export interface Version {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: number;
  readonly labels: Labels;
  readonly json: string;
}

export interface Change {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  readonly resourceVersion: number;
  /** After a deletion: the last state, with the version of the deletion. */
  readonly now: Version;
  readonly before: Version | undefined;
}

export class History {
  readonly #ring: (Change | undefined)[];
  #first = 0;
  #end = 0;
  /** Everything after this version is known. */
  #floor: number;

  constructor(limit: number, floor: number) {
    this.#ring = new Array<Change | undefined>(Math.max(1, limit)).fill(undefined);
    this.#floor = floor;
  }

  get floor(): number {
    return this.#floor;
  }

  /** Places count up for ever; the next change gets this one. */
  get end(): number {
    return this.#end;
  }

  push(change: Change): void {
    if (this.#end - this.#first === this.#ring.length) {
      this.#floor = this.at(this.#first)?.resourceVersion ?? this.#floor;
      this.#first += 1;
    }
    this.#ring[this.#end % this.#ring.length] = change;
    this.#end += 1;
  }

  expire(floor: number): void {
    this.#ring.fill(undefined);
    this.#first = this.#end;
    this.#floor = floor;
  }

  /** Undefined when the place has left the ring, or holds nothing yet. */
  at(place: number): Change | undefined {
    return place >= this.#first && place < this.#end ? this.#ring[place % this.#ring.length] : undefined;
  }

  isLost(place: number): boolean {
    return place < this.#first;
  }

  /** The place of the first change after `version`; undefined when the version is expired. */
  after(version: number): number | undefined {
    if (version < this.#floor) return undefined;
    let low = this.#first;
    let high = this.#end;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.at(middle)?.resourceVersion ?? 0) > version) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}

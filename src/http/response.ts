/**
 * Node's response, with what the router needs to know of each request: its connection, and the place that it
 * holds in admission. The place is given back with the call of `end`: what the peer reads, and when, makes no difference.
 */
import { type IncomingMessage, ServerResponse } from 'node:http';
import type { Admission, Place } from './admission.js';
import type { Connection } from './connections.js';

export class GatedResponse extends ServerResponse<IncomingMessage> {
  connectionState: Connection | undefined = undefined;
  /** Set while the request counts for an address behind a proxy (see Connections.countFor). */
  address: string | undefined = undefined;
  #admission: Admission | undefined = undefined;
  #place: Place | undefined = undefined;

  /** False: there is no place. A caller whose connection is closed needs none. */
  enter(admission: Admission, place: Place): boolean {
    if (this.req.socket.destroyed) return true;
    if (!admission.enter(place)) return false;
    this.#admission = admission;
    this.#place = place;
    return true;
  }

  /** Also when the connection breaks: a response behind another one in it is never ended by Node then. */
  leave(): void {
    if (this.#place === undefined) return;
    this.#admission?.leave(this.#place);
    this.#place = undefined;
  }

  override end(...given: unknown[]): this {
    this.leave();
    return super.end(...(given as Parameters<ServerResponse['end']>));
  }
}

/**
 * Where the routers find the database. They are started first, so that calls are served at once, and are told an
 * address when there is no database yet: this one, in front of it. Whoever comes too early waits; where there will be
 * none, whoever comes is refused, as by any database that is down.
 */
import { randomBytes } from 'node:crypto';
import { Service } from '../service.js';

const host = '127.0.0.1';

export class Front {
  readonly role = { name: 'router', password: randomBytes(16).toString('hex') };
  readonly #service: Service;
  #databasePort: number | undefined;
  #listensOn = 0;
  #open = () => {};

  constructor() {
    const opened = new Promise<void>((resolve) => {
      this.#open = resolve;
    });
    this.#service = new Service(
      () => (this.#databasePort === undefined ? [] : [{ host, port: this.#databasePort }]),
      opened,
    );
  }

  async listen(): Promise<void> {
    this.#listensOn = await this.#service.listen(0, host);
  }

  /** With the name under which the database shall know the connection, and whatever the shell says about TLS. */
  urlFor(life: string): string {
    const { name, password } = this.role;
    return `postgres://${name}:${password}@${host}:${this.#listensOn}/postgres?sslmode=disable&application_name=${life}`;
  }

  /** Undefined: there is none, or no more. */
  lead(databasePort: number | undefined): void {
    this.#databasePort = databasePort;
    this.#open();
  }

  async close(): Promise<void> {
    await this.#service.close();
  }
}

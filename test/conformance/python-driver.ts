/** The Python client: driver.py as a child process that speaks JSON lines. */
import { fileURLToPath } from 'node:url';
import { type PythonProcess, startPython } from '../support/python.js';
import { type Driver, type Fields, operations, type Session, type Target } from './format.js';

const program = fileURLToPath(new URL('driver.py', import.meta.url));

class DriverProcess {
  readonly process: PythonProcess;
  #nextId = 0;
  readonly #waiting = new Map<number, (outcome: Fields) => void>();

  constructor(mode: string) {
    this.process = startPython([program, mode]);
    this.process.onLine((line) => {
      const { id, outcome } = JSON.parse(line) as { id: number; outcome: Fields };
      this.#waiting.get(id)?.(outcome);
    });
  }

  async run(op: string, args: object): Promise<Fields> {
    const id = this.#nextId++;
    const answered = new Promise<Fields>((resolve) => this.#waiting.set(id, resolve));
    this.process.send(JSON.stringify({ id, op, args }));
    const ended = this.process.exited.then((code) => {
      // A drain after SIGTERM may end the process between the release of its last call and the answer.
      if (op === 'end_call' && code === 'SIGTERM') return {};
      throw new Error(`the driver ended with ${code}:\n${this.process.log}`);
    });
    return Promise.race([answered, ended]);
  }

  async stop(): Promise<void> {
    this.process.kill('SIGKILL');
    await this.process.exited;
  }
}

/** One process for all cases without an agent; one for each case with an agent, which installs a signal handler. */
export function pythonDriver(mode: 'sync' | 'async'): Driver {
  let shared: DriverProcess | undefined;

  const open = async (target: Target): Promise<Session> => {
    if (!target.agent) shared ??= new DriverProcess(mode);
    const driver = (!target.agent && shared) || new DriverProcess(mode);
    const refuseKey = (text: string) => {
      if (text.includes(target.apiKey)) throw new Error(`the client shows its key: ${text}`);
    };
    refuseKey(JSON.stringify(await driver.run('open', target)));
    return {
      async run(op, args) {
        if (op === 'terminate') driver.process.kill('SIGTERM');
        else if (op === 'exited') await driver.process.exited;
        else return driver.run(op, args);
        return {};
      },
      async close() {
        if (target.agent) await driver.stop();
        else await driver.run('close', {});
        refuseKey(driver.process.log);
      },
    };
  };
  return { name: 'python', title: `python ${mode}`, operations, open, stop: async () => shared?.stop() };
}

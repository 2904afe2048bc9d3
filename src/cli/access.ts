/** Commands that call a router: its address and key, and the connection. */
import { Option } from 'commander';
import { durationMaxMs } from '../config/durations.js';
import { misspelt } from '../config/typos.js';
import type { RouterApi } from './api.js';
import { type AddCommand, type CommandSpec, command, type Given } from './cli.js';
import { Failure, oneLine } from './failure.js';
import { duration } from './input.js';

export interface RouterOptions {
  url?: string;
  timeout: number;
}

export type GivenRouter<Options = object> = Given<Options & RouterOptions> & { api: RouterApi };

export const routerOptions = [
  new Option('--url <url>', 'address of the router (default: SMART_ROUTER_URL, else http://127.0.0.1:8080)'),
  new Option('--timeout <duration>', 'maximum wait for one reply')
    .argParser(duration(1, durationMaxMs))
    .default(10_000, '10s'),
];

/** The first one that is set. */
const keyNames = ['SMART_ROUTER_ADMIN_KEY', 'SMART_ROUTER_API_KEY'];

export const keyNote = `
Access:
  The key is read from the environment: SMART_ROUTER_ADMIN_KEY, or else
  SMART_ROUTER_API_KEY. It is never an argument, because other users can see
  arguments and the shell history keeps them.`;

export function routerCommand<Options = object>(spec: CommandSpec<GivenRouter<Options>>): AddCommand {
  return command<Options & RouterOptions>({
    ...spec,
    exits: [...(spec.exits ?? []), 6],
    options: [...routerOptions, ...(spec.options ?? [])],
    notes: [keyNote],
    run: (given) => withRouter(given, (api) => spec.run({ ...given, api })),
  });
}

/** Runs `work` with a connection to the router of the options and the environment, and closes it. */
export async function withRouter<T>(
  { cli: { env, clock, output }, options: { url, timeout: timeoutMs } }: Given<RouterOptions>,
  work: (api: RouterApi) => Promise<T>,
): Promise<T> {
  for (const warning of misspelt(env, ['SMART_ROUTER_URL', ...keyNames])) output.warn(warning);
  // Loaded here: commands without a router do without TLS, which takes 4 MB.
  const { RouterApi } = await import('./api.js');
  const api = new RouterApi({ baseUrl: readUrl(url, env), key: readKey(env), timeoutMs, clock });
  try {
    return await work(api);
  } catch (error) {
    // Our own code throws these on a reply with unexpected types.
    const isMisread = [TypeError, RangeError, SyntaxError].some((type) => error instanceof type);
    if (!isMisread) throw error;
    const reason = oneLine((error as Error).message).slice(0, 200);
    throw new Failure(
      'not_a_router',
      `unexpected reply from ${api.baseUrl}: not a Smart Router of this version (${reason}). Check --url or SMART_ROUTER_URL.`,
      [],
      { cause: error },
    );
  } finally {
    api.close();
  }
}

/** The address of the router: the option, the environment, or the default. */
export function readUrl(option: string | undefined, env: NodeJS.ProcessEnv): string {
  const from = option === undefined ? 'SMART_ROUTER_URL' : '--url';
  const text = (option ?? env.SMART_ROUTER_URL?.trim()) || 'http://127.0.0.1:8080';
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !/^https?:$/.test(url.protocol) || url.search || url.hash) {
    const message = `${from} must be a URL like http://127.0.0.1:8080, got ${JSON.stringify(text)}`;
    throw new Failure('usage', message);
  }
  if (url.username || url.password) {
    const message = `${from} must not contain a user or password: set SMART_ROUTER_ADMIN_KEY instead`;
    throw new Failure('usage', message);
  }
  // People paste addresses of the API.
  return url.href.replace(/\/+$/, '').replace(/\/api\/v1$/, '');
}

export const isKey = (value: string | undefined) => /^[\x21-\x7e]+$/.test(value ?? '');

function readKey(env: NodeJS.ProcessEnv): { value: string; from: string } | undefined {
  const from = keyNames.find((name) => env[name]);
  const value = from && env[from];
  if (!from || !value) return undefined;
  if (isKey(value)) return { value, from };
  throw new Failure(
    'configuration',
    `${from} must be visible ASCII characters without spaces or line breaks (a secret file may end in one); the value is not shown`,
  );
}

/** The uid of `pod` if this runs inside it: the preStop of a replaced pod must not drain its successor. */
export function ownUid(pod: string, env: NodeJS.ProcessEnv): string | undefined {
  return (env.POD_NAME === pod && env.POD_UID) || undefined;
}

/**
 * The providers' webhooks. A new call is answered with the URL of a pod, in the provider's format; a final status releases
 * the call. A request without a signature is rejected before its body is read. A signature is checked when the body is
 * complete, and only then does the request take a slot as a known caller.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { callSidProblem, isName } from '../../config/tiers.js';
import { AppError } from '../../errors.js';
import { allocateFor } from '../allocation.js';
import { assertLocalCaller, isOpen } from '../auth.js';
import { type App, documented, type HttpContext } from '../context.js';
import { inTime } from '../deadline.js';
import { admit, type GatedResponse } from '../gate.js';
import {
  hasMoreFields,
  MAX_BODY_BYTES,
  MAX_PARAMS,
  type Pair,
  parseForm,
  parseMultipart,
  recordFromJson,
  toRecord,
} from '../providers/form.js';
import {
  hasPlivoSignature,
  requestUrl,
  verifyExotel,
  verifyPlivo,
  verifyTwilio,
} from '../providers/signatures.js';
import { callSidOf, isFinalStatus, PROVIDERS, type Provider } from '../providers/status.js';
import { type Held, voices } from '../providers/xml.js';
import { notUtf8, surrogateProblem, textOf } from '../unicode.js';

/** Twilio's signature is computed over up to eight variants of the URL. */
const MAX_URL_BYTES = 2 * 1024;

interface Params {
  pairs: readonly Pair[];
  record: Record<string, string | undefined>;
}

interface Received extends Params {
  query: Record<string, string | undefined>;
}

export async function webhookRoutes(app: App, context: HttpContext): Promise<void> {
  for (const provider of PROVIDERS) {
    await app.register(async (scope) => {
      acceptBodies(scope as App, provider);
      scope.addHook('onRequest', async (request) => rejectUnsigned(context, provider, request));
      scope.addHook('preValidation', async (request, reply) => {
        verify(context, provider, request);
        scope.connections.known(reply.raw as GatedResponse);
        admit(context, reply, false);
      });
      const routes = {
        allocate: { summary: `New call of ${provider}: answers with the URL of a pod`, answer: allocate },
        status: {
          summary: `Status callback of ${provider}: a final status releases the call`,
          answer: status,
        },
      };
      for (const [name, { summary, answer }] of Object.entries(routes)) {
        scope.route({
          method: provider === 'exotel' ? ['POST', 'GET'] : ['POST'],
          exposeHeadRoute: false,
          url: `/${provider}/${name}`,
          bodyLimit: MAX_BODY_BYTES,
          config: { access: 'webhook' },
          ...documented('webhooks')(summary, {}),
          handler: (request, reply) => answer(context, provider, request, reply),
        });
      }
    });
  }
}

/** Forms for Twilio and Plivo; Exotel also sends JSON and multipart. */
function acceptBodies(scope: App, provider: Provider): void {
  scope.removeAllContentTypeParsers();
  const accept = (type: string, parse: (body: Buffer, request: FastifyRequest) => Params) =>
    scope.addContentTypeParser(type, { parseAs: 'buffer' }, async (request: FastifyRequest, body: Buffer) =>
      parse(body, request),
    );
  const params = (pairs: Pair[] | undefined): Params => {
    if (pairs) return { pairs, record: toRecord(pairs) };
    throw new AppError(
      'invalid_request',
      `the body must be a form in UTF-8 with at most ${MAX_PARAMS} fields`,
    );
  };
  accept('application/x-www-form-urlencoded', (body) => params(parseForm(body)));
  if (provider !== 'exotel') return;
  accept('multipart/form-data', (body, { headers }) =>
    params(parseMultipart(body, headers['content-type'] ?? '')),
  );
  accept('application/json', (body) => {
    const text = textOf(body);
    if (text === undefined) throw notUtf8();
    const value = text === '' ? {} : jsonOf(text);
    const problem = surrogateProblem(text, value);
    if (problem) throw problem;
    return { pairs: [], record: recordFromJson(value) };
  });
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new AppError('invalid_request', 'the body is not valid JSON');
  }
}

/** Fields of the body win over those of the query. */
function readParams(request: FastifyRequest): Received {
  const { pairs, record } = bodyOf(request);
  // A repeated name is a list: the first value counts, as in a form.
  const query = Object.fromEntries(
    Object.entries(request.query as Record<string, string | string[] | undefined>).map(([key, value]) => [
      key,
      Array.isArray(value) ? value[0] : value,
    ]),
  );
  return { pairs, record: { ...query, ...record }, query };
}

function bodyOf({ body }: FastifyRequest): Params {
  return (body ?? { pairs: [], record: {} }) as Params;
}

/** Undefined: this router has no keys and checks no signature. */
function tokenOf({ config }: HttpContext, provider: Provider): string | undefined {
  const tokens = {
    twilio: config.twilioAuthToken,
    plivo: config.plivoAuthToken,
    exotel: config.exotelWebhookToken,
  };
  const token = tokens[provider];
  if (token !== undefined || isOpen(config)) return token;
  throw new AppError(
    'forbidden',
    `webhooks of ${provider} are disabled: set its token on the router to enable them`,
  );
}

/** Rejects requests without a signature, before the body. Exotel's token is checked here: it needs no body. */
function rejectUnsigned(context: HttpContext, provider: Provider, request: FastifyRequest): void {
  const { url = '' } = request.raw;
  if (url.length > MAX_URL_BYTES) {
    throw new AppError('invalid_request', `the URL is longer than ${MAX_URL_BYTES / 1024} KiB`);
  }
  if (hasMoreFields(url)) {
    throw new AppError('invalid_request', `the query has more than ${MAX_PARAMS} fields`);
  }
  const token = tokenOf(context, provider);
  // For every method: Exotel's GET allocates a pod.
  if (token === undefined) {
    assertLocalCaller(context.config, request);
    return;
  }
  const { headers } = request;
  const mayBeValid =
    provider === 'twilio'
      ? headers['x-twilio-signature'] !== undefined
      : provider === 'plivo'
        ? hasPlivoSignature(headers)
        : verifyExotel({
            token,
            queryToken: (request.query as Record<string, string | string[] | undefined>).token,
            authorization: headers.authorization,
          });
  if (!mayBeValid) throw wrongSignature(context, provider);
}

function verify(context: HttpContext, provider: Provider, request: FastifyRequest): void {
  const token = tokenOf(context, provider);
  if (token === undefined || provider === 'exotel') return;
  const { headers, method } = request;
  const { pairs: params } = bodyOf(request);
  const url = urlOf(context, request);
  // A Host header can hold any text: "other.example/path?" would make our path a query, which V2 does not sign.
  const isHostValid = !/[/?#]/.test(request.protocol + request.host);
  const isSigned =
    provider === 'twilio'
      ? verifyTwilio({ token, signature: headers['x-twilio-signature'], url, params })
      : verifyPlivo({ token, headers, method, url, params });
  if (!isHostValid || !isSigned) throw wrongSignature(context, provider);
}

function urlOf({ config }: HttpContext, request: FastifyRequest): string {
  return requestUrl({
    publicUrl: config.publicUrl,
    protocol: request.protocol,
    host: request.host,
    originalUrl: request.raw.url ?? '',
  });
}

function wrongSignature({ metrics }: HttpContext, provider: Provider): AppError {
  metrics.webhookRefusals.inc({ provider });
  return new AppError('forbidden', `the signature of ${provider} is missing or wrong`);
}

async function allocate(
  context: HttpContext,
  provider: Provider,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<unknown> {
  const { record, query } = readParams(request);
  const callSid = callSidOf(provider, record);
  const problem = callSidProblem(callSid, provider === 'plivo' ? 'CallUUID' : 'CallSid');
  if (problem) throw new AppError('invalid_request', problem);
  const voice = provider === 'exotel' ? undefined : voices[provider];
  reply.type(voice ? 'text/xml; charset=utf-8' : 'application/json; charset=utf-8');
  // By default Plivo sends its hangup to the answer URL: that must not allocate a pod.
  if (isFinalStatus(provider, record)) {
    await releaseIfFinal(context, provider, record, request);
    return voice ? '<Response/>' : { success: true, released: true };
  }
  const merchantId = query.merchant_id ?? '';
  if (merchantId !== '' && !isName(merchantId)) {
    throw new AppError('invalid_request', 'merchant_id must be 1 to 64 of A-Z a-z 0-9 _ . -');
  }
  try {
    const result = await allocateFor(
      context,
      { request, reply },
      {
        callSid: String(callSid),
        merchantId,
        provider,
        flow: query.flow || 'v2',
        template: query.template || undefined,
      },
      voice ? { waitMs: 0, wasHeld: query.hold === '1' } : {},
    );
    if ('wsUrl' in result) return voice ? voice.stream(result.wsUrl) : { url: result.wsUrl };
    return voice?.held(heldAnswer(context, request, query, result.waiting.position));
  } catch (error) {
    if (!(error instanceof AppError) || !voice) throw error;
    request.about.code = error.code;
    // A held caller stays on the line over an outage: the provider would end the call after an error.
    if (query.hold === '1' && outages.includes(error.code)) {
      return voice.held(heldAnswer(context, request, query, Number.POSITIVE_INFINITY));
    }
    if (!refusals.includes(error.code)) throw error;
    const number = context.settings.merchants.get(merchantId)?.fallback_number;
    return error.code === 'wait_expired' && number !== undefined ? voice.dial(number) : voice.unavailable;
  }
}

const refusals = ['no_pods', 'merchant_limit', 'queue_full', 'wait_expired'];
const outages = ['store_unavailable', 'store_full', 'not_replicated', 'timeout', 'overloaded'];
/** About what the message takes to speak. */
const messageSeconds = 3;

/** The next request comes to the same address, with `hold=1` and the place that the caller was told last. */
function heldAnswer(
  context: HttpContext,
  request: FastifyRequest,
  query: Received['query'],
  position: number,
): Held {
  const { holdMessage, holdAudioUrl, holdAnnouncePosition, holdPollIntervalMs } = context.config;
  const told = Number(query.position ?? '') || Number.POSITIVE_INFINITY;
  // Not `new URL`: it rejects some addresses that a Host header can form.
  const [address = '', search] = urlOf(context, request).split(/\?(.*)/s);
  const params = new URLSearchParams(search);
  params.set('hold', '1');
  if (holdAnnouncePosition && Math.min(told, position) < Number.POSITIVE_INFINITY) {
    params.set('position', String(Math.min(told, position)));
  }
  return {
    url: `${address}?${params}`,
    message: holdMessage,
    audioUrl: holdAudioUrl,
    announcement: holdAnnouncePosition && position < told ? `You are number ${position} in the queue.` : '',
    pauseSeconds: Math.max(1, Math.round(holdPollIntervalMs / 1000) - messageSeconds),
  };
}

async function status(context: HttpContext, provider: Provider, request: FastifyRequest): Promise<unknown> {
  const { record } = readParams(request);
  return { success: true, released: await releaseIfFinal(context, provider, record, request) };
}

/** Never fails: providers do not retry, and the lease ends a call that was not released. */
async function releaseIfFinal(
  context: HttpContext,
  provider: Provider,
  record: Params['record'],
  request: FastifyRequest,
): Promise<boolean> {
  const callSid = callSidOf(provider, record);
  if (!isFinalStatus(provider, record) || callSid === undefined || callSidProblem(callSid)) return false;
  request.about.call_sid = callSid;
  try {
    await inTime(context, context.router.release(callSid));
    return true;
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== 'call_not_found') {
      request.log.warn(
        { err: error, call_sid: callSid },
        'releasing a finished call failed; the lease will expire',
      );
    }
    return false;
  }
}

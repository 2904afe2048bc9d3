/**
 * The providers' webhooks. A provider that rings gets the address of a pod in its own language; one that says
 * the call has ended releases it. A request without a signature is refused before its body is read; one with a signature
 * is checked as soon as the body is complete, and takes its place in admission as a known caller only then.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { callSidProblem, isName } from '../../config/tiers.js';
import { AppError } from '../../errors.js';
import { allocateFor } from '../allocating.js';
import { assertLocalCaller, isOpen } from '../auth.js';
import type { App, HttpContext } from '../context.js';
import { withDeadline } from '../deadline.js';
import { admit } from '../gate.js';
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
import { requestUrl } from '../providers/public-url.js';
import { hasPlivoSignature, verifyExotel, verifyPlivo, verifyTwilio } from '../providers/signatures.js';
import { callSidOf, isFinalStatus, PROVIDERS, type Provider } from '../providers/status.js';
import { plivoStream, plivoUnavailable, twimlStream, twimlUnavailable } from '../providers/xml.js';
import type { GatedResponse } from '../response.js';
import { notUtf8, surrogateProblem, textOf } from '../unicode.js';

/** Twilio's signature is computed over up to eight variants of the address. */
const MAX_URL_BYTES = 2 * 1024;

interface Params {
  pairs: readonly Pair[];
  record: Record<string, string | undefined>;
}

interface Received extends Params {
  query: Record<string, string | undefined>;
}

interface Answers {
  stream(url: string): unknown;
  /** Undefined: 503 JSON. */
  unavailable?: () => unknown;
  type: string;
}

const xml = 'text/xml; charset=utf-8';
const answers: Record<Provider, Answers> = {
  twilio: { stream: twimlStream, unavailable: () => twimlUnavailable(), type: xml },
  plivo: { stream: plivoStream, unavailable: () => plivoUnavailable(), type: xml },
  exotel: { stream: (url) => ({ url }), type: 'application/json; charset=utf-8' },
};

export async function webhookRoutes(app: App, context: HttpContext): Promise<void> {
  for (const provider of PROVIDERS) {
    await app.register(async (scope) => {
      acceptBodies(scope as App, provider);
      scope.addHook('onRequest', async (request) => refuseUnsigned(context, provider, request));
      scope.addHook('preValidation', async (request, reply) => {
        verify(context, provider, request);
        scope.connections.known(reply.raw as GatedResponse);
        admit(context, reply, false);
      });
      const config = { access: 'webhook' as const };
      const schema = { tags: ['webhooks'] };
      const method = provider === 'exotel' ? ['POST', 'GET'] : ['POST'];
      scope.route({
        method,
        exposeHeadRoute: false,
        url: `/${provider}/allocate`,
        bodyLimit: MAX_BODY_BYTES,
        config,
        schema: { ...schema, summary: `${provider} rings: answers with the address of a pod` },
        handler: (request, reply) => allocate(context, provider, request, reply),
      });
      scope.route({
        method,
        exposeHeadRoute: false,
        url: `/${provider}/status`,
        bodyLimit: MAX_BODY_BYTES,
        config,
        schema: { ...schema, summary: `${provider}'s status callback: a final status releases the call` },
        handler: async (request) => {
          const { record } = readParams(request);
          return { success: true, released: await releaseIfFinal(context, provider, record, request) };
        },
      });
    });
  }
}

/** Forms for Twilio and Plivo; Exotel also sends JSON and multipart. */
function acceptBodies(scope: App, provider: Provider): void {
  scope.removeAllContentTypeParsers();
  const params = (pairs: Pair[] | undefined): Params => {
    if (!pairs)
      throw new AppError(
        'invalid_request',
        `the body is not a form in UTF-8 with at most ${MAX_PARAMS} fields`,
      );
    return { pairs, record: toRecord(pairs) };
  };
  scope.addContentTypeParser(
    'application/x-www-form-urlencoded',
    { parseAs: 'buffer' },
    async (_: FastifyRequest, body: Buffer) => params(parseForm(body)),
  );
  if (provider !== 'exotel') return;
  scope.addContentTypeParser(
    'multipart/form-data',
    { parseAs: 'buffer' },
    async (request: FastifyRequest, body: Buffer) =>
      params(parseMultipart(body, request.headers['content-type'] ?? '')),
  );
  scope.addContentTypeParser(
    'application/json',
    { parseAs: 'buffer' },
    async (_: FastifyRequest, body: Buffer) => {
      const text = textOf(body);
      if (text === undefined) throw notUtf8();
      if (text === '') return { pairs: [], record: {} } satisfies Params;
      const value = jsonOf(text);
      const problem = surrogateProblem(text, value);
      if (problem) throw problem;
      return { pairs: [], record: recordFromJson(value) } satisfies Params;
    },
  );
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new AppError('invalid_request', 'the body is not valid JSON');
  }
}

/** The body's fields over the query's. */
function readParams(request: FastifyRequest): Received {
  const { pairs, record } = bodyOf(request);
  // A name sent twice comes as a list: the first one counts, as in a form.
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

/** Undefined: this router is open and checks nothing. */
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
    `webhooks of ${provider} are off: set its token on the router to turn them on`,
  );
}

/** What can be judged without the body: is there a signature at all? Exotel's token needs no body. */
function refuseUnsigned(context: HttpContext, provider: Provider, request: FastifyRequest): void {
  const { url = '' } = request.raw;
  if (url.length > MAX_URL_BYTES) {
    throw new AppError('invalid_request', `the address is longer than ${MAX_URL_BYTES / 1024} KiB`);
  }
  if (hasMoreFields(url)) {
    throw new AppError('invalid_request', `the query has more than ${MAX_PARAMS} fields`);
  }
  const token = tokenOf(context, provider);
  // Of any method: Exotel's GET takes a pod.
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
  const { config } = context;
  const { headers, method } = request;
  const { pairs: params } = bodyOf(request);
  const url = requestUrl({
    ...(config.publicUrl === undefined ? {} : { publicUrl: config.publicUrl }),
    protocol: request.protocol,
    host: request.host,
    originalUrl: request.raw.url ?? '',
  });
  // Any text can stand in a Host header: "other.example/path?" would make our path a query, which V2 does not sign.
  const isAddress = !/[/?#]/.test(request.protocol + request.host);
  const isSigned =
    provider === 'twilio'
      ? verifyTwilio({ token, signature: headers['x-twilio-signature'], url, params })
      : verifyPlivo({ token, headers, method, url, params });
  if (!isAddress || !isSigned) throw wrongSignature(context, provider);
}

function wrongSignature({ metrics }: HttpContext, provider: Provider): AppError {
  metrics.webhookRefusals.inc({ provider });
  return new AppError('forbidden', `this does not come from ${provider}: its signature is missing or wrong`);
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
  const answer = answers[provider];
  reply.type(answer.type);
  // Plivo sends its hangup to the answer address unless told otherwise: that must not take a pod.
  if (isFinalStatus(provider, record).final) {
    await releaseIfFinal(context, provider, record, request);
    return provider === 'exotel' ? { success: true, released: true } : '<Response/>';
  }
  const merchantId = query.merchant_id ?? '';
  if (merchantId !== '' && !isName(merchantId)) {
    throw new AppError('invalid_request', 'merchant_id must be 1 to 64 of A-Z a-z 0-9 _ . -');
  }
  try {
    const { wsUrl } = await allocateFor(context, request, {
      callSid: String(callSid),
      merchantId,
      provider,
      flow: query.flow || 'v2',
      template: query.template || undefined,
    });
    return answer.stream(wsUrl);
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== 'no_pods' || !answer.unavailable) throw error;
    request.about.code = error.code;
    return answer.unavailable();
  }
}

/** Never fails: a provider does not try again, and what is missed here the lease brings back. */
async function releaseIfFinal(
  { router, clock, config }: HttpContext,
  provider: Provider,
  record: Params['record'],
  request: FastifyRequest,
): Promise<boolean> {
  const { callSid, final } = isFinalStatus(provider, record);
  if (!final || callSid === undefined || callSidProblem(callSid)) return false;
  request.about.call_sid = callSid;
  try {
    await withDeadline(clock, config.requestTimeoutMs, router.release(callSid));
    return true;
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== 'call_not_found') {
      request.log.warn(
        { err: error, call_sid: callSid },
        'a finished call could not be released: its lease will end',
      );
    }
    return false;
  }
}

/**
 * The providers' webhooks. A provider that rings gets the address of a pod in its own language; one that says
 * the call has ended releases it. Signatures are checked before anything else is looked at.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { callSidProblem, isName } from '../../calls/tiers.js';
import { AppError } from '../../errors.js';
import { allocateFor } from '../allocating.js';
import type { App, HttpContext } from '../context.js';
import { withDeadline } from '../deadline.js';
import { type Pair, parseForm, parseMultipart, recordFromJson, toRecord } from '../providers/form.js';
import { requestUrl } from '../providers/public-url.js';
import { verifyExotel, verifyPlivo, verifyTwilio } from '../providers/signatures.js';
import { callSidOf, isFinalStatus, PROVIDERS, type Provider } from '../providers/status.js';
import { plivoStream, plivoUnavailable, twimlStream, twimlUnavailable } from '../providers/xml.js';

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
      const config = { access: 'webhook' as const };
      const schema = { tags: ['webhooks'] };
      const method = provider === 'exotel' ? ['POST', 'GET'] : ['POST'];
      scope.route({
        method,
        exposeHeadRoute: false,
        url: `/${provider}/allocate`,
        config,
        schema: { ...schema, summary: `${provider} rings: answers with the address of a pod` },
        handler: (request, reply) => allocate(context, provider, request, reply),
      });
      scope.route({
        method,
        exposeHeadRoute: false,
        url: `/${provider}/status`,
        config,
        schema: { ...schema, summary: `${provider}'s status callback: a final status releases the call` },
        handler: async (request) => {
          const { record } = readParams(context, provider, request);
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
    if (!pairs) throw new AppError('invalid_request', 'the body is not a form with at most 1000 fields');
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
    { parseAs: 'string' },
    async (_: FastifyRequest, body: string) => {
      try {
        return { pairs: [], record: body === '' ? {} : recordFromJson(JSON.parse(body)) } satisfies Params;
      } catch {
        throw new AppError('invalid_request', 'the body is not valid JSON');
      }
    },
  );
}

/** The body's fields over the query's, after the signature has been checked. */
function readParams(context: HttpContext, provider: Provider, request: FastifyRequest): Received {
  const body = (request.body ?? { pairs: [], record: {} }) as Params;
  verify(context, provider, request, body.pairs);
  // A name sent twice comes as a list: the first one counts, as in a form.
  const query = Object.fromEntries(
    Object.entries(request.query as Record<string, string | string[] | undefined>).map(([key, value]) => [
      key,
      Array.isArray(value) ? value[0] : value,
    ]),
  );
  return { pairs: body.pairs, record: { ...query, ...body.record }, query };
}

function verify(
  { config, metrics }: HttpContext,
  provider: Provider,
  request: FastifyRequest,
  params: readonly Pair[],
): void {
  const tokens = {
    twilio: config.twilioAuthToken,
    plivo: config.plivoAuthToken,
    exotel: config.exotelWebhookToken,
  };
  const token = tokens[provider];
  if (token === undefined) {
    if (config.apiKey === undefined && config.adminKey === undefined) return;
    throw new AppError(
      'forbidden',
      `webhooks of ${provider} are off: set its token on the router to turn them on`,
    );
  }
  const { headers, method } = request;
  const url = requestUrl({
    ...(config.publicUrl === undefined ? {} : { publicUrl: config.publicUrl }),
    protocol: request.protocol,
    host: request.host,
    originalUrl: request.raw.url ?? '',
  });
  const query = request.query as Record<string, string | string[] | undefined>;
  const valid =
    provider === 'twilio'
      ? verifyTwilio({ token, signature: headers['x-twilio-signature'], url, params })
      : provider === 'plivo'
        ? verifyPlivo({ token, headers, method, url, params })
        : verifyExotel({ token, queryToken: query.token, authorization: headers.authorization });
  if (valid) return;
  metrics.webhookRefusals.inc({ provider });
  throw new AppError('forbidden', `this does not come from ${provider}: its signature is missing or wrong`);
}

async function allocate(
  context: HttpContext,
  provider: Provider,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<unknown> {
  const { record, query } = readParams(context, provider, request);
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

/** Tier and merchant configuration at run time. */
import Type from 'typebox';
import { serializeTierConfig } from '../../config/tiers.js';
import { AppError } from '../../errors.js';
import { param } from '../action-log.js';
import { type App, documented, type HttpContext } from '../context.js';
import { inTime } from '../deadline.js';
import { Merchant, Merchants, Tiers, TiersPreview } from '../operator-schemas.js';
import * as schemas from '../schemas.js';

const AnyObject = Type.Record(Type.String(), Type.Unknown(), { description: 'a JSON object' });

export async function settingsRoutes(app: App, context: HttpContext): Promise<void> {
  const { router, settings } = context;
  const { ErrorAnswer } = schemas;
  const about = documented('configuration');
  const errors = { 400: ErrorAnswer, 503: ErrorAnswer };
  const unknown = { 404: schemas.errorOf('merchant_not_found') };
  // Also for reads: reading the configuration applies it, which must not happen to an unprepared store.
  app.addHook('preHandler', async () => router.assertPrepared());

  const showTiers = (warnings: readonly string[] = []) => ({
    ...(JSON.parse(serializeTierConfig(settings.tiers)) as {
      tiers: Record<string, { type: string; target: number; max_concurrent?: number }>;
      default_chain: string[];
    }),
    ...(settings.hold ? { hold: settings.hold } : {}),
    version: settings.tierVersion,
    ...(warnings.length > 0 ? { warnings: [...warnings] } : {}),
  });
  const showMerchant = (id: string) => {
    const { steps, skipped } = settings.chainFor(id);
    const { fallback, ...merchant } = settings.merchants.get(id) ?? {};
    return {
      merchant_id: id,
      ...merchant,
      ...(fallback ? { fallback: [...fallback] } : {}),
      chain: [...steps],
      skipped,
    };
  };

  app.get(
    '/tiers',
    about('The tier configuration', { response: { 200: Tiers, 503: ErrorAnswer } }),
    async (_, reply) => {
      await inTime(context, settings.refreshOrThrow());
      reply.header('etag', `"${settings.tierVersion}"`);
      return showTiers();
    },
  );

  app.put(
    '/tiers',
    {
      config: { action: { name: 'tiers.replace' } },
      ...about(
        'Replace the tier configuration (any of the three forms); If-Match with a version does not overwrite a newer one',
        {
          body: AnyObject,
          response: {
            200: Tiers,
            ...errors,
            409: schemas.errorOf('version_conflict', 'tier_conflict'),
          },
        },
      ),
    },
    async (request, reply) => {
      const expected = parseIfMatch(request.headers['if-match']);
      const warnings = await inTime(context, settings.replaceTiers(request.body, request.actor, expected));
      request.log.info({ by: request.actor, version: settings.tierVersion }, 'tier configuration replaced');
      reply.header('etag', `"${settings.tierVersion}"`);
      return showTiers(warnings);
    },
  );

  app.post(
    '/tiers/preview',
    about('The chains that merchants would get from a tier configuration; changes nothing', {
      body: AnyObject,
      response: { 200: TiersPreview, 400: ErrorAnswer, 503: ErrorAnswer },
    }),
    async ({ body }) => {
      await inTime(context, settings.refreshOrThrow());
      const { problems, warnings, chains } = settings.preview(body);
      return {
        valid: problems.length === 0,
        problems,
        warnings,
        chains: chains.map(({ merchantId, steps, skipped }) => ({
          merchant_id: merchantId,
          chain: [...steps],
          skipped,
        })),
      };
    },
  );

  app.get(
    '/merchants',
    about('All merchants with their chains', {
      response: { 200: Merchants, 503: ErrorAnswer },
    }),
    async () => {
      await inTime(context, settings.refreshOrThrow());
      return { merchants: [...settings.merchants.keys()].sort().map(showMerchant) };
    },
  );

  app.get(
    '/merchants/:id',
    about('One merchant', {
      params: schemas.MerchantParams,
      response: { 200: Merchant, ...errors, ...unknown },
    }),
    async ({ params }) => {
      await inTime(context, settings.refreshOrThrow());
      if (!settings.merchants.has(params.id)) {
        throw new AppError(
          'merchant_not_found',
          `no configuration for merchant ${params.id}: its calls use the default chain`,
        );
      }
      return showMerchant(params.id);
    },
  );

  app.put(
    '/merchants/:id',
    {
      config: { action: { name: 'merchant.set', target: param('id') } },
      ...about(
        'Write the configuration of a merchant: where its calls go, how they wait, and their limits; all optional',
        {
          params: schemas.MerchantParams,
          body: AnyObject,
          response: { 200: Merchant, ...errors },
        },
      ),
    },
    async (request) => {
      await inTime(context, settings.setMerchant(request.params.id, request.body, request.actor));
      return showMerchant(request.params.id);
    },
  );

  app.delete(
    '/merchants/:id',
    {
      config: { action: { name: 'merchant.delete', target: param('id') } },
      ...about('Delete the configuration of a merchant: its calls use the default chain again', {
        params: schemas.MerchantParams,
        response: {
          200: Type.Object({ success: Type.Literal(true), merchant_id: schemas.text('the merchant') }),
          ...errors,
          ...unknown,
        },
      }),
    },
    async (request) => {
      await inTime(context, settings.deleteMerchant(request.params.id, request.actor));
      return { success: true as const, merchant_id: request.params.id };
    },
  );
}

function parseIfMatch(header: string | undefined): number | undefined {
  if (header === undefined || header === '*') return undefined;
  const version = /^(?:W\/)?"?(\d{1,15})"?$/.exec(header.trim())?.[1];
  if (version === undefined)
    throw new AppError('invalid_request', 'If-Match must be a version, as in the ETag of GET /tiers');
  return Number(version);
}

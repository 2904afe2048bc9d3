/**
 * WF6, sitemap import: fetches the sitemap of a row of `sitemap_files`, and inserts what it lists as Queued: pages into
 * `pages`, and the files of a sitemap index into `sitemap_files`.
 *
 * All rows of a file are written in one transaction that commits only if the claim still holds: a file is imported as a
 * whole or not at all, and importing it again adds only new rows. Rows are written in the order of a hash of their URLs, so
 * that two imports of the same pages cannot deadlock. An index that contains itself ends because a URL is stored once;
 * one that grows without end stops at `maxDepth`.
 */
import { createHash } from 'node:crypto';
import type { PoolClient } from 'pg';
import type { Clock } from '../clock.js';
import type { RecordContext, Row, WorkflowDefinition } from '../records/workflow.js';
import { decodedText, gunzipped } from './fetch/body.js';
import { type Answer, Fetcher, type FetcherOptions } from './fetch/fetcher.js';
import { queries } from './queries.generated.js';
import { type Sitemap, SitemapParser } from './sitemap-parser.js';
import { WorkSlices } from './work-slices.js';

export interface SitemapImportOptions extends FetcherOptions {
  /** Of one file, compressed or not. Default: 50 MB, the sitemap protocol's limit. */
  maxBytes?: number;
  /** Nested sitemap indexes. Default: 3; the protocol allows one. */
  maxDepth?: number;
}

const protocolMaxBytes = 50 * 1024 * 1024;
const rowsPerInsert = 1_000;

/** Both shipped workflows use these words. */
export const shippedStatus = {
  queued: 'Queued',
  processing: 'Processing',
  completed: 'Completed',
  failed: 'Failed',
};

export function sitemapImport(options: SitemapImportOptions): WorkflowDefinition {
  const { maxBytes = protocolMaxBytes, maxDepth = 3 } = options;
  // A large file on a slow server takes longer than a page.
  const fetcher = new Fetcher({ totalMs: 120_000, ...options });

  async function process(record: Row, ctx: RecordContext): Promise<void> {
    const url = String(record.url);
    const depth = Number(record.depth ?? 0);
    const limit = { maxBytes, what: 'sitemap' };
    ctx.trace(`fetching ${url}`);
    const request = {
      ...limit,
      accept: 'application/xml, text/xml, text/plain;q=0.8, */*;q=0.5',
      signal: ctx.signal,
    };
    const sitemap = await fetcher.get(url, request, (answer) => readSitemap(answer, limit, options.clock));
    const { kind, urls, invalid, duplicates } = sitemap;
    ctx.trace(
      `parsed ${amount(urls.length)} URLs (${kind}), dropped ${amount(invalid)} invalid, ${amount(duplicates)} twice`,
    );
    if (kind === 'sitemaps' && depth >= maxDepth) {
      throw new Error(`sitemap indexes are nested deeper than ${maxDepth}`);
    }
    const ordered = { kind, urls: await orderByHash(urls, new WorkSlices(options.clock, ctx.signal)) };
    const added = await ctx.tx((client) => storeSitemap(client, record.id, depth, ordered));
    ctx.trace(`added ${amount(added)} of ${amount(urls.length)} ${kind}, the others existed`);
  }

  return {
    name: 'sitemap-import',
    table: 'sitemap_files',
    status: { column: 'sitemap_import_status', ...shippedStatus },
    error: 'sitemap_import_error',
    touchedAt: 'updated_at',
    batchSize: 10,
    // Each may hold 50,000 URLs.
    concurrency: 4,
    process,
  };
}

export async function readSitemap(
  { body, contentType, signal }: Pick<Answer, 'body' | 'contentType' | 'signal'>,
  limit: { maxBytes: number; what: string },
  clock: Clock,
): Promise<Sitemap> {
  const parser = new SitemapParser();
  const work = new WorkSlices(clock, signal);
  for await (const text of decodedText(await gunzipped(body, limit), contentType)) {
    parser.write(text);
    work.count(text.length);
    await work.rest();
  }
  return parser.end();
}

/** By a hash, because comparing 50,000 long URLs blocks for 200 ms. */
async function orderByHash(urls: readonly string[], work: WorkSlices): Promise<string[]> {
  const keyed: { key: number; url: string }[] = [];
  for (const url of urls) {
    keyed.push({ key: createHash('md5').update(url).digest().readUIntBE(0, 6), url });
    work.count(url.length);
    await work.rest();
  }
  keyed.sort((a, b) => a.key - b.key || (a.url < b.url ? -1 : 1));
  return keyed.map(({ url }) => url);
}

/** Resolves to the number of new rows. */
async function storeSitemap(
  client: PoolClient,
  id: unknown,
  depth: number,
  { kind, urls }: Pick<Sitemap, 'kind' | 'urls'>,
): Promise<number> {
  let added = 0;
  for (let at = 0; at < urls.length; at += rowsPerInsert) {
    const some = urls.slice(at, at + rowsPerInsert);
    const domains = some.map((url) => new URL(url).hostname);
    const { rowCount } =
      kind === 'pages'
        ? await client.query(queries.insertPages, [id, some, domains])
        : await client.query(queries.insertSitemapFiles, [id, depth + 1, some, domains]);
    added += rowCount ?? 0;
  }
  return added;
}

function amount(count: number): string {
  return count.toLocaleString('en');
}

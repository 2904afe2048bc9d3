/**
 * WF7, page curation: fetches the page of a row of `pages`, and writes its title, description and contacts in one
 * statement that commits only if the claim still holds. A page without any of them is Completed; one that is not HTML, or
 * cannot be fetched, is Failed with the reason.
 */
import type { Clock } from '../clock.js';
import type { RecordContext, Row, WorkflowDefinition } from '../records/workflow.js';
import { findContacts } from './contacts.js';
import { charsetOf } from './fetch/body.js';
import { type Answer, Fetcher, type FetcherOptions } from './fetch/fetcher.js';
import { readPage } from './page-reader.js';
import { queries } from './queries.generated.js';
import { shippedStatus } from './sitemap-import.js';
import { WorkSlices } from './work-slices.js';

const bytesPerPiece = 16_384;

export interface PageCurationOptions extends FetcherOptions {
  /** Of one page, compressed or not. Default: 5 MB. */
  maxBytes?: number;
}

export function pageCuration(options: PageCurationOptions): WorkflowDefinition {
  const { maxBytes = 5 * 1024 * 1024 } = options;
  const fetcher = new Fetcher(options);

  async function process(record: Row, ctx: RecordContext): Promise<void> {
    const url = String(record.url);
    ctx.trace(`fetching ${url}`);
    const accept = 'text/html, application/xhtml+xml;q=0.9, */*;q=0.1';
    const request = { maxBytes, what: 'page', accept, signal: ctx.signal };
    const { title, description, contacts } = await fetcher.get(url, request, (answer) =>
      curate(answer, options.clock),
    );
    const { emails, phones, social } = contacts;
    ctx.trace(
      `found ${emails.length} e-mail addresses, ${phones.length} phone numbers, ${social.length} profiles`,
    );
    await ctx.tx((client) =>
      client.query(queries.savePage, [record.id, title, description, JSON.stringify(contacts)]),
    );
  }

  return {
    name: 'page-curation',
    table: 'pages',
    status: { column: 'page_processing_status', ...shippedStatus },
    error: 'page_processing_error',
    touchedAt: 'updated_at',
    batchSize: 50,
    timeout: '2m',
    process,
  };
}

export async function curate(
  { body, contentType, signal }: Pick<Answer, 'body' | 'contentType' | 'signal'>,
  clock: Clock,
) {
  const type = contentType?.split(';')[0]?.trim().toLowerCase();
  if (type && type !== 'text/html' && type !== 'application/xhtml+xml') {
    throw new Error(`the page is not HTML but ${type.slice(0, 100)}`);
  }
  const chunks: Buffer[] = [];
  for await (const chunk of body) chunks.push(chunk);
  const bytes = Buffer.concat(chunks);
  const work = new WorkSlices(clock, signal);
  const page = await readPage(textsOf(bytes, charsetOf(bytes, contentType)), work);
  return { title: page.title, description: page.description, contacts: await findContacts(page, work) };
}

/** In pieces: the text of a page takes up to twice the memory of its bytes. */
function* textsOf(bytes: Buffer, charset: string): Generator<string> {
  const decoder = new TextDecoder(charset);
  for (let at = 0; at < bytes.length; at += bytesPerPiece)
    yield decoder.decode(bytes.subarray(at, at + bytesPerPiece), { stream: true });
  yield decoder.decode();
}

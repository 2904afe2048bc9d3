/** The shipped workflows as they run: a real web server, a real database, the record loop. Guarantee 10a. */
import { gzipSync } from 'node:zlib';
import type { Pool } from 'pg';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { systemClock } from '../../src/clock.js';
import { createRecordLoop, defineWorkflow, migrate } from '../../src/records/index.js';
import { applyMigrations } from '../../src/records/migrate.js';
import { Sessions } from '../../src/records/sessions.js';
import { migrations } from '../../src/workflows/migrations.generated.js';
import { type PageCurationOptions, pageCuration } from '../../src/workflows/page-curation.js';
import { type SitemapImportOptions, sitemapImport } from '../../src/workflows/sitemap-import.js';
import { describePostgres, type SuitePostgres } from '../support/postgres.js';
import { startWeb, type Web } from './web.js';

const open = { clock: systemClock, allowPrivateAddresses: true };
const log = pino({ level: 'silent' });

let web: Web;
beforeEach(async () => {
  web = await startWeb();
});
afterEach(() => web.close());

async function database(postgres: SuitePostgres): Promise<Pool> {
  const pool = postgres.pool();
  await migrate(pool);
  await applyMigrations(pool, 'workflows', migrations);
  return pool;
}

const urlset = (...paths: string[]) =>
  `<urlset>${paths.map((path) => `<url><loc>${web.origin}${path}</loc></url>`).join('')}</urlset>`;
const index = (...paths: string[]) =>
  `<sitemapindex>${paths.map((path) => `<sitemap><loc>${web.origin}${path}</loc></sitemap>`).join('')}</sitemapindex>`;

async function addSitemap(pool: Pool, url: string): Promise<void> {
  await pool.query('INSERT INTO sitemap_files (domain, url) VALUES ($1, $2)', [new URL(url).hostname, url]);
}

/** Batch after batch until nothing is queued any more; how many records that were. */
async function runAll(
  pool: Pool,
  sitemaps: Partial<SitemapImportOptions> = {},
  pages?: Partial<PageCurationOptions>,
): Promise<number> {
  const definitions = [
    sitemapImport({ ...open, ...sitemaps }),
    ...(pages ? [pageCuration({ ...open, ...pages })] : []),
  ];
  const loop = createRecordLoop({ pool, workflows: definitions.map((one) => defineWorkflow(one)), log });
  try {
    let records = 0;
    for (;;) {
      const { claimed } = await loop.runOnce();
      if (claimed === 0) return records;
      records += claimed;
    }
  } finally {
    await loop.stop();
  }
}

const sitemapRows = async (pool: Pool) =>
  (await pool.query('SELECT * FROM sitemap_files ORDER BY id')).rows as Record<string, unknown>[];
const pageRows = async (pool: Pool) =>
  (await pool.query('SELECT * FROM pages ORDER BY url')).rows as Record<string, unknown>[];

/** Runs one sitemap and gives the outcome that is written beside it. */
async function importOutcome(
  pool: Pool,
  url: string,
  options?: Partial<SitemapImportOptions>,
): Promise<unknown[]> {
  await addSitemap(pool, url);
  await runAll(pool, options);
  const row = (await sitemapRows(pool)).at(-1);
  return [row?.sitemap_import_status, row?.sitemap_import_error];
}

describePostgres('sitemap import', (postgres) => {
  it('inserts every page of a sitemap as Queued', async () => {
    const pool = await database(postgres);
    expect(await importOutcome(pool, web.on('/sitemap.xml', urlset('/b', '/a', '/a')))).toEqual([
      'Completed',
      null,
    ]);
    expect(await pageRows(pool)).toMatchObject(
      ['/a', '/b'].map((path) => ({
        url: web.origin + path,
        domain: '127.0.0.1',
        sitemap_file_id: '1',
        page_processing_status: 'Queued',
        page_processing_error: null,
        title: null,
      })),
    );
  });

  it.each([
    ['as a file', {}],
    ['by the server', { 'content-encoding': 'gzip' }],
  ])('reads a sitemap compressed with gzip %s', async (_, headers) => {
    const pool = await database(postgres);
    const url = web.on('/sitemap.xml.gz', gzipSync(urlset('/a')), headers);
    expect(await importOutcome(pool, url)).toEqual(['Completed', null]);
    expect(await pageRows(pool)).toHaveLength(1);
  });

  it('reads one compressed twice, as a file and by the server', async () => {
    const pool = await database(postgres);
    const twice = gzipSync(gzipSync(urlset('/a')));
    expect(await importOutcome(pool, web.on('/s.gz', twice, { 'content-encoding': 'gzip' }))).toEqual([
      'Completed',
      null,
    ]);
  });

  it('reads plain text', async () => {
    const pool = await database(postgres);
    const url = web.on('/sitemap.txt', `${web.origin}/a\n${web.origin}/b\n`, {
      'content-type': 'text/plain',
    });
    expect(await importOutcome(pool, url)).toEqual(['Completed', null]);
    expect(await pageRows(pool)).toHaveLength(2);
  });

  it('queues the files of an index one level deeper, and ends even if they contain each other', async () => {
    const pool = await database(postgres);
    await addSitemap(pool, web.on('/index.xml', index('/1.xml', '/2.xml.gz', '/index.xml')));
    web.on('/1.xml', urlset('/a', '/b'));
    web.on('/2.xml.gz', gzipSync(urlset('/b', '/c')));
    expect(await runAll(pool)).toBe(3);
    const rows = await sitemapRows(pool);
    expect(
      rows.map(({ depth, parent_id, sitemap_import_status }) => [depth, parent_id, sitemap_import_status]),
    ).toEqual([
      [0, null, 'Completed'],
      [1, '1', 'Completed'],
      [1, '1', 'Completed'],
    ]);
    expect((await pageRows(pool)).map(({ url }) => url)).toEqual(
      ['/a', '/b', '/c'].map((path) => web.origin + path),
    );
  });

  it('fails an index nested deeper than maxDepth', async () => {
    const pool = await database(postgres);
    for (let n = 0; n < 9; n += 1) web.on(`/${n}.xml`, index(`/${n + 1}.xml`));
    expect(await importOutcome(pool, `${web.origin}/0.xml`, { maxDepth: 2 })).toEqual([
      'Failed',
      'sitemap indexes are nested deeper than 2',
    ]);
    expect(web.asked).toEqual(['/0.xml', '/1.xml', '/2.xml']);
  });

  it('adds only new pages when imported again', async () => {
    const pool = await database(postgres);
    await importOutcome(pool, web.on('/sitemap.xml', urlset('/a', '/b')));
    await pool.query(
      "UPDATE pages SET page_processing_status = 'Completed', title = 'A' WHERE url LIKE '%/a'",
    );
    web.on('/sitemap.xml', urlset('/a', '/b', '/c'));
    await pool.query("UPDATE sitemap_files SET sitemap_import_status = 'Queued'");
    await runAll(pool);
    const pages = (await pageRows(pool)).map(({ title, page_processing_status }) => [
      title,
      page_processing_status,
    ]);
    expect(pages).toEqual([
      ['A', 'Completed'],
      [null, 'Queued'],
      [null, 'Queued'],
    ]);
  });

  it('writes the error in one line, and imports nothing of the file', async () => {
    const pool = await database(postgres);
    const loop = web.on('/loop', (response) => response.writeHead(302, { location: '/loop' }).end());
    const cases: [string, string, Partial<SitemapImportOptions>?][] = [
      [
        web.on('/broken.xml', `${urlset('/a').replace('</urlset>', '\n')}<url>`),
        'line 2, column 6: <url> is not closed',
      ],
      [
        web.on('/page.html', '<!doctype html><html>'),
        'line 1, column 16: expected <urlset> or <sitemapindex>, found <html>',
      ],
      [`${web.origin}/missing.xml`, `GET ${web.origin}/missing.xml answered 404`],
      [loop, `GET ${loop} redirects in a loop, to ${loop}`],
      [
        web.on('/huge.xml', urlset('/a').padEnd(5000)),
        'the sitemap is larger than 1,000 bytes',
        { maxBytes: 1000 },
      ],
      [
        web.on('/bomb.gz', gzipSync(Buffer.alloc(1024 ** 2, ' '))),
        'the sitemap is larger than 5,000 bytes',
        { maxBytes: 5000 },
      ],
      [
        web.on('/cut.gz', gzipSync(urlset('/a')).subarray(0, 40)),
        'the gzip data is broken (unexpected end of file)',
      ],
      [web.on('/slow.xml', () => {}), `GET ${web.origin}/slow.xml sent nothing for 50ms`, { silenceMs: 50 }],
      [
        web.on('/private.xml', urlset('/a')),
        'refused: 127.0.0.1 is a loopback address (set RECORDS_ALLOW_PRIVATE_ADDRESSES=true to allow)',
        { allowPrivateAddresses: false },
      ],
    ];
    for (const [url, message, options] of cases)
      expect(await importOutcome(pool, url, options)).toEqual(['Failed', message]);
    expect(web.asked).not.toContain('/private.xml');
    expect(await pageRows(pool)).toEqual([]);
  });

  it('imports nothing if its claim is lost while the file is read', async () => {
    const pool = await database(postgres);
    const url = web.on('/sitemap.xml', (response) => {
      void pool.query('DELETE FROM smart_router.claims').then(() => response.end(urlset('/a')));
    });
    await importOutcome(pool, url);
    expect(web.asked).toEqual(['/sitemap.xml']);
    expect(await pageRows(pool)).toEqual([]);
  });

  it('two imports of the same pages in opposite order do not deadlock', async () => {
    const pool = await database(postgres);
    const paths = Array.from({ length: 5000 }, (_, n) => `/${n}`);
    await addSitemap(pool, web.on('/1.xml', urlset(...paths)));
    await addSitemap(pool, web.on('/2.xml', urlset(...paths.toReversed())));
    await runAll(pool);
    expect((await sitemapRows(pool)).map((row) => row.sitemap_import_error)).toEqual([null, null]);
    expect(await pageRows(pool)).toHaveLength(5000);
  });

  it('leaves traces of its progress', async () => {
    const pool = await database(postgres);
    const url = web.on('/sitemap.xml', urlset('/a', '/b', '/b'));
    await addSitemap(pool, url);
    const notes: string[] = [];
    await sitemapImport(open).process(
      { id: '1', url, depth: 0 },
      {
        signal: new AbortController().signal,
        trace: (note) => notes.push(note),
        tx: (work) => new Sessions({ pool, clock: systemClock }).transaction(work),
      },
    );
    expect(notes).toEqual([
      `fetching ${url}`,
      'parsed 2 URLs (pages), dropped 0 invalid, 1 twice',
      'added 2 of 2 pages, the others existed',
    ]);
  });
});

describePostgres('page curation', (postgres) => {
  it('writes title, description and contacts', async () => {
    const pool = await database(postgres);
    await addSitemap(pool, web.on('/sitemap.xml', urlset('/contact')));
    const html = `<title>Müller &amp; Söhne</title><meta name=description content="Brot">
      <a href="mailto:info@example.com">x</a> +49 30 1234567 <a href="https://x.com/acme">y</a>`;
    web.on('/contact', Buffer.from(html, 'latin1'), { 'content-type': 'text/html; charset=iso-8859-1' });
    expect(await runAll(pool, {}, {})).toBe(2);
    expect(await pageRows(pool)).toMatchObject([
      {
        page_processing_status: 'Completed',
        page_processing_error: null,
        title: 'Müller & Söhne',
        description: 'Brot',
        contacts: {
          emails: ['info@example.com'],
          phones: ['+49301234567'],
          social: [{ network: 'x', url: 'https://x.com/acme' }],
        },
      },
    ]);
  });

  it('completes a page without content', async () => {
    const pool = await database(postgres);
    await pool.query('INSERT INTO pages (url) VALUES ($1)', [web.on('/empty', '')]);
    await runAll(pool, {}, {});
    expect(await pageRows(pool)).toMatchObject([
      {
        page_processing_status: 'Completed',
        title: null,
        description: null,
        contacts: { emails: [], phones: [], social: [] },
      },
    ]);
  });

  it('characters that PostgreSQL refuses do not fail a page', async () => {
    const pool = await database(postgres);
    const html =
      '<title>a\0b&#xD800;</title><a href="mailto:\0@example.com">\0</a><meta name=description content="\0c">';
    await pool.query('INSERT INTO pages (url) VALUES ($1)', [
      web.on('/nul', html, { 'content-type': 'text/html' }),
    ]);
    await runAll(pool, {}, {});
    expect(await pageRows(pool)).toMatchObject([{ page_processing_status: 'Completed', description: 'c' }]);
  });

  it('writes the error in one line', async () => {
    const pool = await database(postgres);
    const cases: [string, string][] = [
      [`${web.origin}/gone`, `GET ${web.origin}/gone answered 404`],
      [
        web.on('/file.pdf', '%PDF', { 'content-type': 'application/pdf' }),
        'the page is not HTML but application/pdf',
      ],
      [
        web.on('/huge', 'x'.repeat(5000), { 'content-type': 'text/html' }),
        'the page is larger than 1,000 bytes',
      ],
      ['ftp://example.com/', 'cannot fetch ftp://example.com/: ftp:// is neither http nor https'],
    ];
    for (const [url] of cases) await pool.query('INSERT INTO pages (url) VALUES ($1)', [url]);
    await runAll(pool, {}, { maxBytes: 1000 });
    const rows = new Map(
      (await pageRows(pool)).map((row) => [row.url, [row.page_processing_status, row.page_processing_error]]),
    );
    for (const [url, message] of cases) expect(rows.get(url)).toEqual(['Failed', message]);
  });

  it('writes nothing if its claim is lost while the page is read', async () => {
    const pool = await database(postgres);
    const url = web.on('/page', (response) => {
      void pool.query('DELETE FROM smart_router.claims').then(() => response.end('<title>Late</title>'));
    });
    await pool.query('INSERT INTO pages (url) VALUES ($1)', [url]);
    await runAll(pool, {}, {});
    expect(web.asked).toEqual(['/page']);
    expect(await pageRows(pool)).toMatchObject([{ title: null, contacts: null }]);
  });
});

describePostgres('the shipped tables', (postgres) => {
  it('are created once, and work with the queries of the runbook', async () => {
    const pool = await database(postgres);
    expect(await applyMigrations(pool, 'workflows', migrations)).toEqual({ applied: [] });
    await pool.query(`SELECT id, domain, updated_at, sitemap_import_status, sitemap_import_error FROM sitemap_files
      WHERE sitemap_import_status = 'Processing' AND updated_at < NOW() - INTERVAL '1 hour' ORDER BY updated_at LIMIT 100`);
    await pool.query(`SELECT id, url, updated_at, page_processing_status, page_processing_error FROM pages
      WHERE page_processing_status = 'Processing' AND updated_at < NOW() - INTERVAL '1 hour' ORDER BY updated_at LIMIT 100`);
  });
});

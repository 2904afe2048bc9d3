/** The two shipped workflows as the demo runs them: every name resolves to its own web, which is on this machine. */
import { systemClock } from '../../clock.js';
import { defineWorkflow, type Workflow } from '../../records/index.js';
import { pageCuration } from '../../workflows/page-curation.js';
import { sitemapImport } from '../../workflows/sitemap-import.js';
import { webHost } from './web.js';

export interface Pace {
  /** Longest silence of a site. */
  silenceMs: number;
  sitemaps: { batchSize: number; concurrency: number };
  pages: { batchSize: number; concurrency: number };
}

export function demoWorkflows({ silenceMs, sitemaps, pages }: Pace): Workflow[] {
  const fetching = {
    clock: systemClock,
    allowPrivateAddresses: [webHost],
    resolve: (
      _name: string,
      _options: unknown,
      found: (error: null, addresses: { address: string; family: number }[]) => void,
    ) => found(null, [{ address: webHost, family: 4 }]),
    silenceMs,
  };
  return [
    defineWorkflow(sitemapImport({ ...fetching, ...sitemaps })),
    defineWorkflow(pageCuration({ ...fetching, ...pages })),
  ];
}

/**
 * The two shipped workflows as the demo runs them: every host name resolves to the demo's own web server. The routers
 * load this module as their RECORDS_MODULE.
 */
import { systemClock } from '../../clock.js';
import { defineWorkflow, type Workflow } from '../../records/index.js';
import { pageCuration } from '../../workflows/page-curation.js';
import { sitemapImport } from '../../workflows/sitemap-import.js';
import { seconds } from '../setup.js';
import { webHost } from './sites.js';

interface Pace {
  /** How long to wait for a site. */
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
    defineWorkflow({ ...sitemapImport(fetching), ...sitemaps }),
    defineWorkflow({ ...pageCuration(fetching), ...pages }),
  ];
}

const oneAtATime = { batchSize: 1, concurrency: 1 };

/** The routers leave most records to the workers, which are there to be killed. */
export const workflows = demoWorkflows({
  silenceMs: seconds.siteTimeout * 1000,
  sitemaps: oneAtATime,
  pages: oneAtATime,
});

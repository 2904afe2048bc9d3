// `npm run docs`: generates the reference parts of docs/cli.md (from the commands) and docs/api.md (from the OpenAPI
// document of a router), and the Prometheus rules (from the table of alerts). Tests check that they are current.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { prometheusRules, ruleFiles } from './alert-rules.mjs';
import { withReference } from './cli-reference.mjs';
import { withApiReference } from './docs-api.mjs';

const built = new URL('../dist/', import.meta.url);
if (!existsSync(built)) {
  console.error('smart-router: dist/ is missing; run `npm run build` first.');
  process.exit(1);
}
/** @param {string} file */
const load = (file) => import(new URL(file, built).href);

/**
 * @param {string} name
 * @param {(page: string) => string} change
 */
function rewrite(name, change) {
  const page = new URL(`../docs/${name}`, import.meta.url);
  writeFileSync(page, change(readFileSync(page, 'utf8')));
}

const [{ createProgram }, { commandTree }, { exitCodeMeanings }] = await Promise.all(
  ['cli/program.js', 'cli/command-tree.js', 'cli/failure.js'].map(load),
);
// The commands are only read, never run, so they need no environment.
const program = createProgram({});
rewrite('cli.md', (page) => `${withReference(page, commandTree(program), exitCodeMeanings).trimEnd()}\n`);

const { alertRules, runbookOf } = await load('observe/alert-rules.js');
for (const file of ruleFiles)
  writeFileSync(new URL(`../${file}`, import.meta.url), prometheusRules(alertRules, runbookOf));

/** @type {any} */
const document = await openApi();
rewrite('api.md', (page) => withApiReference(page, document));

/** Reads the OpenAPI document from a router without pods, on an embedded store. */
async function openApi() {
  const [{ startRouter }, { loadConfig }, { silentLogger }, { systemClock }] = await Promise.all(
    ['main/router.js', 'config/config.js', 'observe/log.js', 'clock.js'].map(load),
  );
  const env = { REDIS_URL: 'embedded', POD_SOURCE: 'registered', HTTP_PORT: '0', METRICS_PORT: 'off' };
  const router = await startRouter(loadConfig(env, 'serve'), { clock: systemClock, log: silentLogger });
  try {
    const answer = await fetch(`${router.url}/api/v1/openapi.json`);
    return await answer.json();
  } finally {
    await router.stop();
  }
}

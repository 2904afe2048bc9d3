/** What the documents name must be there: variables, files, headings that are linked to. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { describe, expect, it } from 'vitest';
import { agentTable } from '../../src/config/agent.js';
import { configTable } from '../../src/config/table.js';

const documents = [
  ...['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md', 'deploy/helm/smart-router/README.md'],
  'clients/typescript/README.md',
  ...readdirSync('docs', { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
];
/** Of the shell, of the command line, of the tests; and of the example agents. */
const others = new Set([
  ...['NO_COLOR', 'NODE_EXTRA_CA_CERTS', 'DEMO_SPEED', 'SMART_ROUTER_SETUP', 'SMART_ROUTER_TESTS'],
  ...['DRAIN_TIMEOUT_SECONDS', 'DRAIN_UNKNOWN_SECONDS', 'AGENT_DOMAIN'],
]);
const variables = new Set([...configTable, ...agentTable].map(({ name }) => name));

/** As the anchor of a heading is made. */
const anchorOf = (heading: string) =>
  heading
    .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, '')
    .trim()
    .replace(/\s/g, '-');
const anchorsOf = (text: string) =>
  new Set([...text.matchAll(/^#{1,6} (.*)$/gm)].map(([, heading = '']) => anchorOf(heading)));

describe.each(documents)('%s', (path) => {
  const text = readFileSync(path, 'utf8');
  const prose = text.replace(/^```[\s\S]*?^```/gm, '');

  it('names only variables that exist', () => {
    const named = [...prose.matchAll(/`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)(?:=[^`]*)?`/g)].map(
      ([, name = '']) => name,
    );
    expect(named.filter((name) => !variables.has(name) && !others.has(name))).toEqual([]);
  });

  it('has no dead links', () => {
    const broken = [...prose.matchAll(/\]\(([^)\s]+)\)/g)]
      .map(([, link = '']) => link)
      .filter((link) => !/^[a-z]+:/.test(link))
      .filter((link) => {
        const [file = '', anchor] = link.split('#');
        const target = file === '' ? path : normalize(join(dirname(path), file));
        if (!existsSync(target)) return true;
        return anchor !== undefined && !anchorsOf(readFileSync(target, 'utf8')).has(anchor);
      });
    expect(broken).toEqual([]);
  });

  it('names only files and folders that exist', () => {
    const named = [
      ...prose.matchAll(/`((?:src|test|scripts|deploy|console|bench|docs|clients)\/[\w./-]*)`/g),
    ];
    expect(named.map(([, name = '']) => name).filter((name) => !existsSync(name))).toEqual([]);
  });

  it('names only tests that exist', () => {
    const files = readdirSync('test', { recursive: true }).map(String);
    const named = [...prose.matchAll(/`([\w/.-]+\.test\.ts)`/g)].map(([, name = '']) => name);
    const isThere = (name: string) =>
      files.some((file) => `test/${file}` === name || file.endsWith(`/${name}`) || file === name);
    expect(named.filter((name) => !isThere(name))).toEqual([]);
  });
});

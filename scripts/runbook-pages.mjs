// Runbook pages for the console, for operators without a checkout: sections of docs/*.md as plain data. Supports the
// Markdown of these documents: headings, paragraphs, lists, code, tables, links and emphasis. Other markup stays text.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * @typedef {string | { code: string } | { strong: Inline[] } | { em: Inline[] } | { text: Inline[], to: string }} Inline
 * @typedef {{ is: 'paragraph', text: Inline[] } | { is: 'heading', text: Inline[] } | { is: 'code', text: string }
 *   | { is: 'list', ordered: boolean, items: Inline[][] } | { is: 'table', head: Inline[][], rows: Inline[][][] }} Block
 * @typedef {{ title: string, blocks: Block[] }} RunbookPage
 */

/** The documents with pages for operators: alerts lead to the runbook, and its pages to the others. */
export const documents = ['runbook', 'runbook-records', 'operations'];

/** Returns the anchor of a heading, as GitHub makes it. @param {string} heading */
export const anchorOf = (heading) =>
  heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, '')
    .trim()
    .replace(/\s/g, '-');

/** Returns every section by its address in the console, as `runbook/smartrouternoleader`. @param {string} root */
export function runbookPages(root) {
  /** @type {Record<string, RunbookPage>} */
  const pages = {};
  for (const name of documents)
    for (const [anchor, page] of sectionsOf(readFileSync(join(root, 'docs', `${name}.md`), 'utf8'), name))
      pages[`${name}/${anchor}`] = page;
  return pages;
}

/**
 * A section ends at the next heading of the same or a higher rank.
 * @param {string} text @param {string} document @returns {[string, RunbookPage][]}
 */
export function sectionsOf(text, document) {
  const blocks = blocksOf(text, document);
  return blocks.flatMap((block, index) => {
    if (block.is !== 'heading') return [];
    const rest = blocks.slice(index + 1);
    // The title of the document ends at the first section.
    const end = rest.findIndex((one) => one.is === 'heading' && (block.rank === 1 || one.rank <= block.rank));
    const own = end === -1 ? rest : rest.slice(0, end);
    const page = {
      title: block.source.replaceAll('`', ''),
      blocks: own.map((one) => (one.is === 'heading' ? { is: one.is, text: one.text } : one)),
    };
    return [[anchorOf(block.source), /** @type {RunbookPage} */ (page)]];
  });
}

/** @typedef {{ is: 'heading', rank: number, source: string, text: Inline[] }} RankedHeading */

/**
 * @param {string} text @param {string} document
 * @returns {(RankedHeading | Exclude<Block, { is: 'heading' }>)[]}
 */
function blocksOf(text, document) {
  const lines = text.split('\n');
  const inline = (/** @type {string} */ source) => inlineOf(source, document);
  /** @type {(RankedHeading | Exclude<Block, { is: 'heading' }>)[]} */
  const blocks = [];
  let at = 0;
  /** Takes the following lines that match. @param {(line: string) => boolean} matches */
  const take = (matches) => {
    const from = at;
    while (at < lines.length && matches(lines[at] ?? '')) at += 1;
    return lines.slice(from, at);
  };
  while (at < lines.length) {
    const line = lines[at] ?? '';
    const heading = /^(#{1,6}) (.*)$/.exec(line);
    if (line.trim() === '') at += 1;
    else if (heading) {
      const source = heading[2] ?? '';
      blocks.push({ is: 'heading', rank: heading[1]?.length ?? 1, source, text: inline(source) });
      at += 1;
    } else if (line.startsWith('```')) {
      at += 1;
      blocks.push({ is: 'code', text: take((one) => !one.startsWith('```')).join('\n') });
      at += 1;
    } else if (line.startsWith('|')) {
      const [head = '', , ...rows] = take((one) => one.startsWith('|'));
      const cells = (/** @type {string} */ row) => cellsOf(row).map(inline);
      blocks.push({ is: 'table', head: cells(head), rows: rows.map(cells) });
    } else if (itemMark.test(line)) {
      const ordered = /^\d/.test(line);
      const items = itemsOf(take((one) => itemMark.test(one) || /^ {2,}\S/.test(one)));
      blocks.push({ is: 'list', ordered, items: items.map(inline) });
    } else blocks.push({ is: 'paragraph', text: inline(take(isProse).join(' ')) });
  }
  return blocks;
}

const itemMark = /^(?:[-*]|\d+\.) /;
const isProse = (/** @type {string} */ line) =>
  line.trim() !== '' && !/^(#{1,6} |```|\|)/.test(line) && !itemMark.test(line);

/** An indented line continues the item above. @param {string[]} lines */
function itemsOf(lines) {
  /** @type {string[]} */
  const items = [];
  for (const line of lines)
    if (itemMark.test(line)) items.push(line.replace(itemMark, ''));
    else items[items.length - 1] += ` ${line.trim()}`;
  return items;
}

/** Splits a row into cells; a bar in a cell is written `\|`. @param {string} row */
function cellsOf(row) {
  return row
    .trim()
    .replace(/^\||\|$/g, '')
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll('\\|', '|'));
}

const marks = /`([^`]+)`|\*\*(.+?)\*\*|\*([^*\s][^*]*)\*|\[((?:[^\]`]|`[^`]*`)+)\]\(([^)\s]+)\)/;

/** @param {string} source @param {string} document @returns {Inline[]} */
export function inlineOf(source, document) {
  const found = marks.exec(source);
  if (!found) return source === '' ? [] : [source];
  const [all, code, strong, em, link = '', target = ''] = found;
  const inner = (/** @type {string} */ text) => inlineOf(text, document);
  /** @type {Inline[]} */
  const middle =
    code !== undefined
      ? [{ code }]
      : strong !== undefined
        ? [{ strong: inner(strong) }]
        : em !== undefined
          ? [{ em: inner(em) }]
          : linkOf(inner(link), target, document);
  const before = source.slice(0, found.index);
  return [...(before === '' ? [] : [before]), ...middle, ...inner(source.slice(found.index + all.length))];
}

/** A link to a page that the console does not have becomes its text. @param {Inline[]} text @param {string} target @param {string} document @returns {Inline[]} */
function linkOf(text, target, document) {
  if (/^https?:\/\//.test(target)) return [{ text, to: target }];
  const [file = '', anchor] = target.split('#');
  const name = file === '' ? document : file.replace(/\.md$/, '');
  if (!documents.includes(name) || anchor === undefined) return text;
  return [{ text, to: `#/runbook/${name}/${anchor}` }];
}

/** A bundler plug-in: a module with the pages, loaded on demand. @param {string} root */
export function runbookPlugin(root) {
  const name = 'virtual:runbook';
  return {
    name: 'runbook',
    /** @param {string} id */
    resolveId: (id) => (id === name ? `\0${name}` : undefined),
    /** @param {string} id */
    load: (id) => (id === `\0${name}` ? `export default ${JSON.stringify(runbookPages(root))}` : undefined),
  };
}

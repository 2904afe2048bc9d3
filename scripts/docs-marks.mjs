// Generated parts of a page are between marks; the rest is written by hand and stays.

/** @param {string} name */
const open = (name) => `<!-- ${name}: written by \`npm run docs\` -->`;
/** @param {string} name */
const close = (name) => `<!-- end of ${name} -->`;

/**
 * Returns the text with new content between the marks. A text without marks gets them at `place`, by default its end. Empty
 * content removes them.
 * @param {string} text
 * @param {string} name
 * @param {string} content
 * @param {(text: string) => number} [place]
 */
export function filled(text, name, content, place = (all) => all.trimEnd().length) {
  const start = text.indexOf(open(name));
  const end = text.indexOf(close(name));
  const isMarked = start >= 0 && end > start;
  const at = isMarked ? start : place(text);
  const before = text.slice(0, at).trimEnd();
  const after = text.slice(isMarked ? end + close(name).length : at).trimStart();
  const block = content === '' ? [] : [`${open(name)}\n${content}\n${close(name)}`];
  return `${[before, ...block, after].filter((part) => part !== '').join('\n\n')}${after === '' ? '\n\n' : ''}`;
}

/** Escapes a text for a cell of a table. @param {string} text */
export const cell = (text) => text.replaceAll('|', '\\|').replaceAll('<', '&lt;');

/**
 * @param {readonly string[]} titles
 * @param {readonly (readonly string[])[]} rows of cells
 */
export function table(titles, rows) {
  const line = (/** @type {readonly string[]} */ cells) => `| ${cells.join(' | ')} |`;
  return [line(titles), `|${'---|'.repeat(titles.length)}`, ...rows.map(line)].join('\n');
}

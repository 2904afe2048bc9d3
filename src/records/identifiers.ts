/** SQL names: `pages`, `Team.Pages` (folded to lower case), `"Team"."Pages"` (kept as written). */

const unquoted = /^[A-Za-z_\u0080-\uffff][\w$\u0080-\uffff]*/;
const quoted = /^"((?:[^"\0]|"")+)"/;
/** PostgreSQL truncates longer names silently, which would name another object. */
const maxBytes = 63;

/** Returns the parts of a name, unquoted and folded; undefined if it is not a name. */
export function parseName(text: string, maxParts: number): string[] | undefined {
  const parts: string[] = [];
  let rest = text.trim();
  for (;;) {
    const inQuotes = quoted.exec(rest);
    const match = inQuotes ?? unquoted.exec(rest);
    if (!match) return undefined;
    const part = inQuotes
      ? (inQuotes[1] ?? '').replaceAll('""', '"')
      : match[0].replace(/[A-Z]/g, (letter) => letter.toLowerCase());
    if (Buffer.byteLength(part) > maxBytes) return undefined;
    parts.push(part);
    rest = rest.slice(match[0].length);
    if (rest === '') return parts.length <= maxParts ? parts : undefined;
    if (!rest.startsWith('.')) return undefined;
    rest = rest.slice(1);
  }
}

export function quoteName(parts: readonly string[]): string {
  return parts.map((part) => `"${part.replaceAll('"', '""')}"`).join('.');
}

/** Returns a string literal that does not depend on `standard_conforming_strings`. */
export function quoteText(text: string): string {
  const body = text.replaceAll("'", "''");
  return body.includes('\\') ? ` E'${body.replaceAll('\\', '\\\\')}'` : `'${body}'`;
}

export interface OrderColumn {
  column: string;
  /** Direction and place of NULLs. */
  rest: string;
}

/** Parses `priority DESC, created_at NULLS FIRST`; undefined if it is anything else. */
export function parseOrder(text: string): OrderColumn[] | undefined {
  const columns: OrderColumn[] = [];
  for (const piece of splitOutsideQuotes(text)) {
    const match = /^(.*?)((?:\s+(?:ASC|DESC))?(?:\s+NULLS\s+(?:FIRST|LAST))?)$/i.exec(piece.trim());
    const name = match?.[1] === undefined ? undefined : parseName(match[1], 1);
    if (!name?.[0]) return undefined;
    columns.push({ column: name[0], rest: (match?.[2] ?? '').toUpperCase().replace(/\s+/g, ' ') });
  }
  return columns.length > 0 ? columns : undefined;
}

function splitOutsideQuotes(text: string): string[] {
  const pieces: string[] = [''];
  let isQuoted = false;
  for (const letter of text) {
    if (letter === '"') isQuoted = !isQuoted;
    if (letter === ',' && !isQuoted) pieces.push('');
    else pieces[pieces.length - 1] += letter;
  }
  return pieces;
}

/** Names as SQL writes them: `pages`, `Team.Pages` (folded to lower case), `"Team"."Pages"` (kept as they are). */

const unquoted = /^[A-Za-z_\u0080-\uffff][\w$\u0080-\uffff]*/;
const quoted = /^"((?:[^"\0]|"")+)"/;
/** PostgreSQL cuts longer names silently, which would make another name of it. */
const longestBytes = 63;

/** The parts of a name, unquoted and folded; undefined when it is none. */
export function parseName(text: string, mostParts: number): string[] | undefined {
  const parts: string[] = [];
  let rest = text.trim();
  for (;;) {
    const inQuotes = quoted.exec(rest);
    const match = inQuotes ?? unquoted.exec(rest);
    if (!match) return undefined;
    const part = inQuotes
      ? (inQuotes[1] ?? '').replaceAll('""', '"')
      : match[0].replace(/[A-Z]/g, (letter) => letter.toLowerCase());
    if (Buffer.byteLength(part) > longestBytes) return undefined;
    parts.push(part);
    rest = rest.slice(match[0].length);
    if (rest === '') return parts.length <= mostParts ? parts : undefined;
    if (!rest.startsWith('.')) return undefined;
    rest = rest.slice(1);
  }
}

export function quoteName(parts: readonly string[]): string {
  return parts.map((part) => `"${part.replaceAll('"', '""')}"`).join('.');
}

/** A text as a literal, whatever `standard_conforming_strings` says. */
export function quoteText(text: string): string {
  const body = text.replaceAll("'", "''");
  return body.includes('\\') ? ` E'${body.replaceAll('\\', '\\\\')}'` : `'${body}'`;
}

export interface OrderTerm {
  column: string;
  /** What follows the column: direction and place of NULLs. */
  rest: string;
}

/** `priority DESC, created_at NULLS FIRST`; undefined when it is something else. */
export function parseOrder(text: string): OrderTerm[] | undefined {
  const terms: OrderTerm[] = [];
  for (const piece of splitOutsideQuotes(text)) {
    const match = /^(.*?)((?:\s+(?:ASC|DESC))?(?:\s+NULLS\s+(?:FIRST|LAST))?)$/i.exec(piece.trim());
    const name = match?.[1] === undefined ? undefined : parseName(match[1], 1);
    if (!name?.[0]) return undefined;
    terms.push({ column: name[0], rest: (match?.[2] ?? '').toUpperCase().replace(/\s+/g, ' ') });
  }
  return terms.length > 0 ? terms : undefined;
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

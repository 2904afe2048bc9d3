// Judges a history file: `npm run check-history -- FILE`. Shares no code with src/: it knows only what clients sent and
// received. docs/guarantees.md has the promises and the format.
import { Facts } from '../test/history/facts.mjs';
import { judge } from '../test/history/judge.mjs';
import { readHistory, UnreadableHistory } from '../test/history/read.mjs';

const help = `Usage: npm run check-history -- [--json] FILE

Judges promises 1 to 3, 5 to 7 and 12 to 15 of docs/guarantees.md by a file of what clients sent and received.

  --json   print the result as JSON
  --help   print this text

Exit code: 0 no violation, 1 violations, 2 the file cannot be read.
Violations that a fault with loses_writes explains are listed as excused and do not change the exit code.`;

const shown = 20;
const words = process.argv.slice(2);
const files = words.filter((word) => !word.startsWith('-'));
const unknown = words.find((word) => word.startsWith('-') && !['--json', '--help', '-h'].includes(word));
if (words.includes('--help') || words.includes('-h')) console.log(help);
else if (unknown || files.length !== 1) {
  console.error(unknown ? `unknown option ${unknown}` : 'name one history file');
  console.error('see npm run check-history -- --help');
  process.exitCode = 2;
} else await check(/** @type {string} */ (files[0]));

/** @param {string} file */
async function check(file) {
  const facts = new Facts();
  try {
    await readHistory(file, (line) => facts.add(line));
  } catch (error) {
    if (!(error instanceof UnreadableHistory)) throw error;
    console.error(`${file}: ${error.message}`);
    process.exitCode = 2;
    return;
  }
  facts.conclude();
  const result = judge(facts);
  if (words.includes('--json')) console.log(JSON.stringify(result));
  else print(result);
  process.exitCode = result.violations.length > 0 ? 1 : 0;
}

/** @param {ReturnType<typeof judge>} result */
function print({ violations, excused, warnings, ...counts }) {
  const { requests, lost_replies, calls, holds, faults, double_allocations, longest_overlap_ms } = counts;
  console.log(
    `${requests} requests (${lost_replies} without a reply), ${calls} calls, ${holds} allocations, ${faults} faults`,
  );
  for (const warning of warnings) console.log(`warning: ${warning}`);
  if (double_allocations > 0)
    console.log(
      `${double_allocations} double allocations, the longest for ${Math.round(longest_overlap_ms)} ms`,
    );
  list('violations', violations);
  list('excused by faults that lose writes', excused);
  if (violations.length === 0) console.log('no violation');
}

/**
 * @param {string} title
 * @param {import('../test/history/judge.mjs').Violation[]} list
 */
function list(title, list) {
  if (list.length === 0) return;
  console.log(`\n${list.length} ${title}:\n  promise  at (s)      what`);
  for (const { promise, at, text } of list.slice(0, shown))
    console.log(`  ${String(promise).padEnd(9)}${(at / 1000).toFixed(3).padEnd(12)}${text}`);
  if (list.length > shown) console.log(`  and ${list.length - shown} more; --json has all`);
}

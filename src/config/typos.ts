/**
 * Finds misspelt variables: set, unknown, and close to one of ours that is not set.
 *
 * The environment is shared with other programs, so a name must be very close: the same letters in another order, the
 * same words without the underscores, or at most two typos, no more than one in a short word (JOB_NAME is not POD_NAME,
 * DATABASE_USER is not DATABASE_URL). The variables that Kubernetes adds for every Service are ignored.
 */

/** `X_SERVICE_HOST`, `X_SERVICE_PORT_HTTP`, `X_PORT_8080_TCP_ADDR`; `X_PORT` has the value `tcp://...`. */
const ofService = /_SERVICE_(?:HOST|PORT(?:_\w+)?)$|_PORT_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?$/;
const serviceAddress = /^(?:tcp|udp|sctp):\/\//;
const longWord = 5;

/** A warning for each, with the probably intended name. */
export function misspelt(env: NodeJS.ProcessEnv, names: readonly string[]): string[] {
  const unset = names.filter((name) => !env[name]);
  return Object.entries(env).flatMap(([given, value = '']) => {
    if (value === '' || names.includes(given) || ofService.test(given) || serviceAddress.test(value))
      return [];
    const meant = unset.find((name) => resembles(given, name));
    return meant === undefined
      ? []
      : [`${given} is not a variable of Smart Router and is ignored: did you mean ${meant}?`];
  });
}

function resembles(given: string, name: string): boolean {
  if (given.toUpperCase() === name) return true;
  // Other programs write theirs in lower case (npm_config_...).
  if (given !== given.toUpperCase() || Math.abs(given.length - name.length) > 2) return false;
  if (letters(given) === letters(name)) return true;
  const [words, meant] = [given.split('_'), name.split('_')];
  if (words.length !== meant.length) return given.replaceAll('_', '') === name.replaceAll('_', '');
  const typos = words.map((word, i) => distance(word, meant[i] ?? ''));
  const isClose = typos.every((count, i) => count <= ((meant[i] ?? '').length >= longWord ? 2 : 1));
  return isClose && typos.reduce((sum, count) => sum + count, 0) <= 2;
}

const letters = (name: string) => [...name].sort().join('');

/** Insertions, deletions, replacements, and two neighbours in the wrong order, each counted once. */
function distance(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  const at = (i: number, j: number) => rows[i]?.[j] ?? Number.POSITIVE_INFINITY;
  for (let i = 1; i <= a.length; i++) {
    rows.push([i]);
    for (let j = 1; j <= b.length; j++) {
      const isSame = a[i - 1] === b[j - 1];
      const isSwapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      rows[i]?.push(
        Math.min(
          at(i - 1, j) + 1,
          at(i, j - 1) + 1,
          at(i - 1, j - 1) + (isSame ? 0 : 1),
          isSwapped ? at(i - 2, j - 2) + 1 : Number.POSITIVE_INFINITY,
        ),
      );
    }
  }
  return at(a.length, b.length);
}

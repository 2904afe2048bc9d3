/** The version of this package, here so that nothing is read from disk at run time; a test compares it with package.json. */
export const version = '0.1.0';

/** What every request of ours calls itself. */
export const userAgent = `smart-router/${version}`;

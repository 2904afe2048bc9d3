import { createRequire } from 'node:module';

/** The version of this package; package.json is one folder up from src/ and from dist/. */
export const version: string = createRequire(import.meta.url)('../package.json').version;

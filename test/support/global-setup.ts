import { fileURLToPath } from 'node:url';
import { embedLua } from '../../scripts/embed-lua.mjs';

/** Tests import the sources, and those import the Lua files as one generated module. */
export default function setup(): void {
  embedLua(fileURLToPath(new URL('../..', import.meta.url)));
}

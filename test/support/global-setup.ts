import { fileURLToPath } from 'node:url';
import { embedLua, embedSql } from '../../scripts/embed.mjs';

/** Tests import the sources, and those import the Lua and SQL files as generated modules. */
export default function setup(): void {
  const root = fileURLToPath(new URL('../..', import.meta.url));
  embedLua(root);
  embedSql(root);
}

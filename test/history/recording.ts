/** Records what a test's callers send to its routers, and judges it with the independent checker. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { Facts } from './facts.mjs';
import { judge } from './judge.mjs';
import { readHistory } from './read.mjs';
import { HistoryWriter, type Setup } from './writer.js';

interface Poster {
  post(path: string, body: unknown): Promise<{ status: number; body: unknown }>;
}

export function recordHistory(setup: Setup) {
  const folder = mkdtempSync(join(tmpdir(), 'history-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const writer = new HistoryWriter(join(folder, 'history.ndjson'), setup);
  return {
    writer,
    /** The same router; its requests are recorded. */
    of<R extends Poster>(router: R): R {
      const { post } = router;
      router.post = ((path: string, body: unknown) =>
        writer.send(path, body, () => post.call(router, path, body))) as R['post'];
      return router;
    },
    /** Ends the recording. */
    async verdict() {
      writer.close();
      const facts = new Facts();
      await readHistory(writer.path, (line) => facts.add(line));
      facts.conclude();
      return judge(facts);
    },
  };
}

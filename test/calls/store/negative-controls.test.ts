/**
 * A harness that catches nothing proves nothing: each test breaks one line of the scripts and demands that the
 * model or the invariants notice.
 */
import { expect, it } from 'vitest';
import type { Reply } from '../../../src/calls/store/connection.js';
import { type BrokenScript, brokenScripts, brokenText } from '../../support/broken-scripts.js';
import { describeEngines } from '../../support/engines.js';
import { runScenario } from '../../support/model/run.js';
import type { TestStore } from '../../support/store.js';

/** All scripts go the usual way but one, whose broken text is sent. */
function breakScript(control: BrokenScript): (store: TestStore) => void {
  const { script } = control;
  const text = brokenText(control);
  return (store) => {
    const { connection } = store;
    const run = connection.run.bind(connection);
    connection.run = (name, args, operation) => {
      if (name !== script) return run(name, args, operation);
      const now = String(store.nowMs() * 1000);
      return connection.command<Reply>(
        name,
        async (client) => (await client.eval(text, 1, connection.keyPrefix, now, ...args)) as Reply,
      );
    };
  };
}

describeEngines('negative controls', (engine) => {
  it.each(brokenScripts)('are caught: $broken', async (control) => {
    const scenario = { noShowTimeoutMs: 0, ops: [...control.ops] };
    // The scripts as they are pass it.
    await runScenario(engine, scenario);
    const caught = await runScenario(engine, scenario, breakScript(control)).catch(String);
    const message = caught ?? 'not noticed';
    // A script that does not run proves nothing.
    expect(message).not.toMatch(/"internal"|script|WRONGTYPE/);
    expect(message).toMatch(/model: |invariant: |answer: |gave |fence |sweep of |calls ended |outlived |9: /);
  });
});

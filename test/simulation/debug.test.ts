import { it } from 'vitest';
import { simulate } from './simulate.js';

it('debug', async () => {
  const seed = Number(process.env.SEED);
  const about = new RegExp(process.env.ABOUT ?? '.');
  const { trace } = await simulate(seed, {
    sabotage: (world) => {
      world.store.onCommand = (args, reply) => {
        const text = args.slice(0, 1).concat(args.slice(3)).join(' ').slice(0, 400);
        if (about.test(text) || about.test(JSON.stringify(reply)))
          world.history.note(
            `  ${text.replace(/--.*?\n/g, '').slice(0, 200)} => ${JSON.stringify(reply)?.slice(0, 200)}`,
          );
      };
    },
  });
  console.log(trace.slice(-300).join('\n'));
});

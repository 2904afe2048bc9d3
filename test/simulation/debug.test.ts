import { it } from 'vitest';
import { simulate } from './simulate.js';

it('debug', async () => {
  const seed = Number(process.env.SEED);
  const about = new RegExp(process.env.ABOUT ?? '.');
  await simulate(seed, {
    sabotage: (world) => {
      world.store.onCommand = (args, reply) => {
        const text = args.slice(0, 1).concat(args.slice(3)).join(' ').slice(0, 400);
        if (about.test(text) || about.test(JSON.stringify(reply)))
          console.log(
            (world.time.nowMs - 1_800_000_000_000).toFixed(1),
            text.replace(/--.*?\n/g, '').slice(0, 200),
            '=>',
            JSON.stringify(reply)?.slice(0, 200),
          );
      };
    },
  });
});

/** What a part of the benchmark gets, and gives. */
import type { Redis } from 'ioredis';
import type { BenchEngine } from '../support/engine.js';
import type { Figure } from '../support/report.js';

export interface Bench {
  engine: BenchEngine;
  admin: Redis;
  quick: boolean;
}

export type Part = (bench: Bench) => Promise<Figure[]>;

/**
 * A process that was started again is another one for the database: `worker-1.2` is the second life of `worker-1`.
 */
export const lifeOf = (name: string, starts: number) => `${name}.${starts}`;
export const nameOf = (life: string) => life.replace(/\.\d+$/, '');

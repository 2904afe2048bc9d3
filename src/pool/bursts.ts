/**
 * What has come together is handed over together: `items` in pieces of what is there at once. An error comes after the
 * last piece before it. One item is always being waited for: who stops early also ends that waiting, by its own means.
 */
export async function* bursts<T>(
  items: AsyncIterator<T>,
  most: number,
  /** A moment in which whatever has arrived is read. */
  moment: () => Promise<void>,
): AsyncGenerator<T[]> {
  let next = ask(items);
  try {
    for (;;) {
      const first = await next;
      if (first.done) return;
      const burst = [first.value];
      next = ask(items);
      while (burst.length < most) {
        const more = await Promise.race([next.catch(() => undefined), moment()]);
        if (!more || more.done) break;
        burst.push(more.value);
        next = ask(items);
      }
      yield burst;
    }
  } finally {
    items.return?.().catch(() => {});
  }
}

function ask<T>(items: AsyncIterator<T>): Promise<IteratorResult<T>> {
  const asked = items.next();
  // It is looked at later, perhaps never.
  asked.catch(() => {});
  return asked;
}

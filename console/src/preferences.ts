/**
 * The preferences of the user: attributes of the page, `data-theme` and `data-keys`, where the style sheet sees them, and
 * stored in the browser.
 */
import { useState } from 'preact/hooks';

/** The first value is the default, which is neither set nor stored. */
const values = {
  theme: ['system', 'light', 'dark'],
  /** Single-character keys can be turned off, for users of speech input. */
  keys: ['on', 'off'],
} as const;
type Name = keyof typeof values;
type Value<N extends Name> = (typeof values)[N][number];

const { dataset } = document.documentElement;
const keyOf = (name: Name) => `smart-router-${name}`;

for (const name of ['theme', 'keys'] as const) {
  const stored = unlessBlocked(() => localStorage.getItem(keyOf(name)));
  const value = values[name].slice(1).find((known) => known === stored);
  if (value !== undefined) dataset[name] = value;
}

export const preferenceOf = <N extends Name>(name: N) => (dataset[name] ?? values[name][0]) as Value<N>;

export function usePreference<N extends Name>(name: N): [Value<N>, (value: Value<N>) => void] {
  const [, setValue] = useState<Value<N>>();
  const change = (value: Value<N>) => {
    const isDefault = value === values[name][0];
    if (isDefault) delete dataset[name];
    else dataset[name] = value;
    unlessBlocked(() =>
      isDefault ? localStorage.removeItem(keyOf(name)) : localStorage.setItem(keyOf(name), value),
    );
    setValue(value);
  };
  return [preferenceOf(name), change];
}

/** Without storage a preference lasts until the page is closed. */
function unlessBlocked<T>(use: () => T): T | undefined {
  try {
    return use();
  } catch {
    return undefined;
  }
}

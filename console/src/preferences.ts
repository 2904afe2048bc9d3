/** The preferences of the user, stored in the browser. The style sheet sees them as `data-theme` and `data-keys`. */
import { useState } from 'preact/hooks';

export class Preference<T extends string> {
  #value: T;
  readonly #listeners = new Set<() => void>();

  /** The first of the values is the default, which is not stored. */
  constructor(
    readonly name: 'theme' | 'keys',
    readonly values: readonly [T, ...T[]],
  ) {
    const stored = unlessBlocked(() => localStorage.getItem(this.#key));
    this.#value = values.find((value) => value === stored) ?? values[0];
    this.#show();
  }

  get value(): T {
    return this.#value;
  }

  set(value: T): void {
    this.#value = value;
    unlessBlocked(() =>
      value === this.values[0] ? localStorage.removeItem(this.#key) : localStorage.setItem(this.#key, value),
    );
    this.#show();
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  get #key(): string {
    return `smart-router-${this.name}`;
  }

  #show(): void {
    const { dataset } = document.documentElement;
    if (this.#value === this.values[0]) delete dataset[this.name];
    else dataset[this.name] = this.#value;
    for (const listener of this.#listeners) listener();
  }
}

/** Without storage a preference lasts until the page is closed. */
function unlessBlocked<T>(use: () => T): T | undefined {
  try {
    return use();
  } catch {
    return undefined;
  }
}

export function usePreference<T extends string>(preference: Preference<T>): [T, (value: T) => void] {
  const [value, setValue] = useState(preference.value);
  return [
    value,
    (next) => {
      setValue(next);
      preference.set(next);
    },
  ];
}

export type Theme = 'system' | 'light' | 'dark';
export const theme = new Preference<Theme>('theme', ['system', 'light', 'dark']);
/** Single-character keys can be turned off, for users of speech input. */
export const keys = new Preference('keys', ['on', 'off']);

/** For canvas drawings, which do not follow the style sheet. */
export function onThemeChange(listener: () => void): () => void {
  const system = matchMedia('(prefers-color-scheme: dark)');
  system.addEventListener('change', listener);
  const forget = theme.onChange(listener);
  return () => {
    system.removeEventListener('change', listener);
    forget();
  };
}

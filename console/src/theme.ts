/** The colour theme: light, dark or system. */
import { useState } from 'preact/hooks';
import { preference, setPreference } from './preferences';

export type Theme = 'system' | 'light' | 'dark';

function stored(): Theme {
  const value = preference('smart-router-theme');
  return value === 'light' || value === 'dark' ? value : 'system';
}

function apply(theme: Theme): void {
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

apply(stored());

const listeners = new Set<() => void>();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => tell());
const tell = () => {
  for (const listener of listeners) listener();
};

/** For canvas drawings, which do not follow the style sheet. */
export function onThemeChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

export function useTheme(): [Theme, (theme: Theme) => void] {
  const [theme, setTheme] = useState(stored);
  return [
    theme,
    (next) => {
      setTheme(next);
      apply(next);
      setPreference('smart-router-theme', next === 'system' ? undefined : next);
      tell();
    },
  ];
}

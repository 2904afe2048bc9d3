/** How it looks: light, dark, or as the system has it. */
import { useState } from 'preact/hooks';
import { choose, chosen } from './choices';

export type Theme = 'system' | 'light' | 'dark';

function stored(): Theme {
  const value = chosen('smart-router-theme');
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

/** For what is drawn on a canvas: colours there do not follow the style sheet by themselves. */
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
      choose('smart-router-theme', next === 'system' ? undefined : next);
      tell();
    },
  ];
}

/** How it looks: light, dark, or as the system has it; wide or narrow. */
import { useLayoutEffect, useState } from 'preact/hooks';
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

const narrow = matchMedia('(max-width: 860px)');

/** As in the style sheets. */
export function useNarrow(): boolean {
  const [isNarrow, setNarrow] = useState(narrow.matches);
  useLayoutEffect(() => {
    const changed = () => setNarrow(narrow.matches);
    narrow.addEventListener('change', changed);
    return () => narrow.removeEventListener('change', changed);
  }, []);
  return isNarrow;
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

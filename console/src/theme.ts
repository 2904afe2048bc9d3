/** How it looks: light, dark, or as the system has it; wide or narrow. The choice of colours is kept in the browser. */
import { useEffect, useState } from 'preact/hooks';

export type Theme = 'system' | 'light' | 'dark';
const key = 'smart-router-theme';

function stored(): Theme {
  try {
    const value = localStorage.getItem(key);
    return value === 'light' || value === 'dark' ? value : 'system';
  } catch {
    // A browser that keeps nothing: the system decides.
    return 'system';
  }
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
  useEffect(() => {
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
      try {
        if (next === 'system') localStorage.removeItem(key);
        else localStorage.setItem(key, next);
      } catch {
        // It holds until the page is closed.
      }
      tell();
    },
  ];
}

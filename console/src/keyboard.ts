/** Keyboard shortcuts outside fields and dialogs. */
import { useLayoutEffect } from 'preact/hooks';
import { preferenceOf } from './preferences';
import { addressOf, closePanel, go, type PageName, pageNames } from './routes';

export const letters: Record<PageName, string> = {
  overview: 'o',
  pods: 'p',
  calls: 'c',
  recovery: 'r',
  records: 'd',
  tiers: 't',
  events: 'e',
};

const chordMs = 2000;
let chordUntil = 0;

interface KeyboardListener {
  onHelp: () => void;
  /** On a page without a search field. */
  onFind: () => void;
}

export function useKeyboard({ onHelp, onFind }: KeyboardListener): void {
  useLayoutEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const { target, key } = event;
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
      if (target instanceof Element && target.closest('input, select, textarea')) return;
      if (preferenceOf('keys') === 'off' && key !== 'Escape') return;
      const isChord = event.timeStamp < chordUntil;
      chordUntil = 0;
      const page = isChord
        ? pageNames.find((name) => letters[name] === key)
        : /^[1-7]$/.test(key)
          ? pageNames[Number(key) - 1]
          : undefined;
      if (page) go(addressOf(page));
      else if (key === 'g') chordUntil = event.timeStamp + chordMs;
      else if (key === '?') onHelp();
      else if (key === 'Escape') closePanel();
      else if (key === '/') {
        // Otherwise the key would be typed into the field.
        event.preventDefault();
        const field = document.querySelector<HTMLInputElement>('[data-search]');
        field?.focus();
        field?.select();
        if (!field) onFind();
      }
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  });
}

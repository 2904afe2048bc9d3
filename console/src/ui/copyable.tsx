/** A text that is needed elsewhere, with a button that takes it along. */
import { useRef } from 'preact/hooks';
import { tell } from './telling';

export function Copyable({ what, title, text }: { what: string; title: string; text: string }) {
  const code = useRef<HTMLElement>(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      tell(`Copied: ${text}`);
    } catch {
      // A page that did not come over TLS has no clipboard: one key is left to press.
      if (code.current) getSelection()?.selectAllChildren(code.current);
      tell('It is selected: copy it with Ctrl or ⌘ and C.');
    }
  };
  return (
    <span class="small" title={title}>
      {what} <code ref={code}>{text}</code>{' '}
      <button type="button" class="link" aria-label={`Copy ${text}`} onClick={copy}>
        Copy
      </button>
    </span>
  );
}

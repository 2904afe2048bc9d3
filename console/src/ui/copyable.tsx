/** A text with a button that copies it. */
import { useRef } from 'preact/hooks';
import { notify } from './messages';

export function Copyable({ what, title, text }: { what: string; title: string; text: string }) {
  const code = useRef<HTMLElement>(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      notify(`Copied: ${text}`);
    } catch {
      // Without TLS there is no clipboard API: the text is selected for Ctrl-C.
      if (code.current) getSelection()?.selectAllChildren(code.current);
      notify('It is selected: copy it with Ctrl or ⌘ and C.');
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

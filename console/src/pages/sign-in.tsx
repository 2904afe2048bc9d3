/** Asks for the admin key. It is sent once, for a cookie that this page cannot read, and then forgotten. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { ask, sentenceOf } from '../api';
import { Brand } from '../ui/icons';
import { Note } from '../ui/parts';

export function SignIn({ version, onDone }: { version: string; onDone: () => Promise<void> }) {
  const field = useRef<HTMLInputElement>(null);
  const [refusal, setRefusal] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    document.title = 'Sign in · Smart Router';
    field.current?.focus();
  }, []);

  const submit = async (event: Event) => {
    event.preventDefault();
    const input = field.current;
    if (!input || isBusy) return;
    const key = input.value.trim();
    if (key === '') return setRefusal('Enter the admin key.');
    setBusy(true);
    try {
      await ask('/session', { method: 'POST', body: { key } });
      await onDone();
    } catch (error) {
      setRefusal(sentenceOf(error));
      input.focus();
    } finally {
      input.value = '';
      setBusy(false);
    }
  };

  return (
    <main class="signin">
      <form class="card" onSubmit={submit}>
        <Brand note={version ? `version ${version}` : undefined} />
        <h1>Sign in</h1>
        <label class="label" for="key">
          Admin key
          <input
            id="key"
            ref={field}
            class="field"
            type="password"
            autocomplete="off"
            maxLength={512}
            aria-invalid={refusal !== undefined}
            aria-describedby="key-help"
          />
        </label>
        {refusal && <Note tone="bad">{refusal}</Note>}
        <button type="submit" class="btn primary" disabled={isBusy}>
          {isBusy ? 'Signing in…' : 'Sign in'}
        </button>
        <p id="key-help" class="soft small">
          The value of <code>SMART_ROUTER_ADMIN_KEY</code> on the router. It is not stored in this browser.
        </p>
      </form>
    </main>
  );
}

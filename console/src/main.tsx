/** The console: checks the session, then shows the page of the address. */
import { render } from 'preact';
import { useCallback, useEffect, useState } from 'preact/hooks';
import { ask, sentenceOf, whenLocked } from './api';
import { live } from './live/live';
import { SignIn } from './pages/sign-in';
import type { Session } from './types';
import { Shell } from './ui/shell';
import './styles/base.css';
import './styles/shell.css';
import './styles/parts.css';
import './styles/pages.css';

const retryMs = 2000;

function App() {
  const [session, setSession] = useState<Session>();
  const [problem, setProblem] = useState<string>();

  const look = useCallback(async () => {
    try {
      const found = await ask<Session>('/session');
      setProblem(undefined);
      setSession(found);
      if (!found.required || found.signed_in) live.start();
      else live.stop();
    } catch (error) {
      setProblem(sentenceOf(error));
      setTimeout(() => void look(), retryMs);
    }
  }, []);

  useEffect(() => {
    whenLocked(() => {
      live.stop();
      setSession((known) => ({ version: '', expires_at: null, ...known, required: true, signed_in: false }));
    });
    void look();
  }, [look]);

  if (session === undefined) {
    return (
      <div class="signin">
        <p role="status" class="soft">
          {problem === undefined ? 'Connecting…' : `Not connected: ${problem}. Trying again.`}
        </p>
      </div>
    );
  }
  if (session.required && !session.signed_in) return <SignIn version={session.version} onDone={look} />;
  return <Shell session={session} onLeave={look} />;
}

render(<App />, document.getElementById('app') as HTMLElement);

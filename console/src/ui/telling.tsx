/** What happened just now: a note in the corner for who looks, a sentence for who listens. */
import { useLayoutEffect, useState } from 'preact/hooks';
import { Icon } from './icons';

interface Told {
  id: number;
  text: string;
  tone: 'good' | 'bad';
}

let next = 0;
let told: Told[] = [];
let spoken = '';
const listeners = new Set<() => void>();
const render = () => {
  for (const listener of listeners) listener();
};

export function tell(text: string, tone: Told['tone'] = 'good'): void {
  const id = ++next;
  told = [...told.slice(-3), { id, text, tone }];
  say(text);
  setTimeout(
    () => {
      told = told.filter((one) => one.id !== id);
      render();
    },
    tone === 'bad' ? 9000 : 5000,
  );
}

/** For screen readers only. */
export function say(text: string): void {
  spoken = text;
  render();
}

export function Telling() {
  const [, setN] = useState(0);
  useLayoutEffect(() => {
    const listener = () => setN((n) => n + 1);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return (
    <>
      <div class="hidden-visually" aria-live="polite">
        {spoken}
      </div>
      {told.length > 0 && (
        <section class="toasts" aria-label="Messages">
          {told.map(({ id, text, tone }) => (
            <div class="toast" key={id}>
              <span class={`tone-${tone}`}>
                <Icon name={tone === 'good' ? 'check' : 'warning'} />
              </span>
              {text}
            </div>
          ))}
        </section>
      )}
    </>
  );
}

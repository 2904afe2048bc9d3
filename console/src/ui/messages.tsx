/** Messages about completed actions: in the corner of the page, and for screen readers. */
import { useLayoutEffect, useState } from 'preact/hooks';
import { Icon } from './icons';

interface Message {
  id: number;
  text: string;
  tone: 'good' | 'bad';
}

let next = 0;
let messages: Message[] = [];
let announcement = '';
const listeners = new Set<() => void>();
const render = () => {
  for (const listener of listeners) listener();
};

export function notify(text: string, tone: Message['tone'] = 'good'): void {
  const id = ++next;
  messages = [...messages.slice(-3), { id, text, tone }];
  announce(text);
  setTimeout(
    () => {
      messages = messages.filter((one) => one.id !== id);
      render();
    },
    tone === 'bad' ? 9000 : 5000,
  );
}

/** For screen readers only. */
export function announce(text: string): void {
  announcement = text;
  render();
}

export function Messages() {
  const [, setN] = useState(0);
  useLayoutEffect(() => {
    const listener = () => setN((n) => n + 1);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return (
    <>
      <div class="hidden-visually" aria-live="polite">
        {announcement}
      </div>
      {messages.length > 0 && (
        <section class="toasts" aria-label="Messages">
          {messages.map(({ id, text, tone }) => (
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

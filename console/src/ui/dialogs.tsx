/** Dialogs, and those that send a change to the router. */
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { problemsOf } from '../api';
import { Note } from './parts';

/** A native modal dialog: it keeps the focus, and Escape closes it. */
export function Dialog(props: {
  title: string;
  wide?: boolean;
  onClose: () => void;
  children: ComponentChildren;
}) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    ref.current?.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      class={props.wide ? 'wide' : undefined}
      aria-label={props.title}
      onClose={props.onClose}
      onCancel={props.onClose}
    >
      <h2>{props.title}</h2>
      {props.children}
    </dialog>
  );
}

/** One line for each problem. */
export function Notes({ tone, texts }: { tone: 'bad' | 'warn'; texts: readonly string[] }) {
  if (texts.length === 0) return null;
  return (
    <Note tone={tone}>
      {texts.map((text) => (
        <div key={text}>{text}</div>
      ))}
    </Note>
  );
}

interface ActionDialogProps {
  title: string;
  wide?: boolean;
  /** On the button that sends the change. */
  verb: string;
  tone?: 'primary' | 'danger';
  isDisabled?: boolean;
  /** Known before it is sent. */
  problems?: readonly string[];
  /** Sends the change and reports its success. False: nothing was sent, and the dialog stays open. */
  act: () => Promise<unknown>;
  onClose: () => void;
  children: ComponentChildren;
}

/** Sends a change, and closes when it succeeded; otherwise it shows the errors of the router. */
export function ActionDialog(props: ActionDialogProps) {
  const { title, wide = false, verb, tone = 'primary', isDisabled = false, problems = [], onClose } = props;
  const [refusal, setRefusal] = useState<readonly string[]>([]);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setRefusal([]);
    setBusy(true);
    try {
      if ((await props.act()) !== false) return onClose();
    } catch (error) {
      setRefusal(problemsOf(error));
    }
    setBusy(false);
  };
  return (
    <Dialog title={title} wide={wide} onClose={onClose}>
      <form class="stack" onSubmit={submit}>
        {props.children}
        <Notes tone="bad" texts={refusal.length > 0 ? refusal : problems} />
        <div class="row end">
          <button type="button" class="btn" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class={`btn ${tone}`} disabled={isBusy || isDisabled}>
            {verb}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

export function DialogButton(props: {
  /** For screen readers, where the text alone says too little. */
  label?: string;
  isDisabled?: boolean;
  children: ComponentChildren;
  dialog: (onClose: () => void) => ComponentChildren;
}) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <button
        type="button"
        class="btn small"
        aria-label={props.label}
        disabled={props.isDisabled}
        onClick={() => setOpen(true)}
      >
        {props.children}
      </button>
      {isOpen && props.dialog(() => setOpen(false))}
    </>
  );
}

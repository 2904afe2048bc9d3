/** An ordered list with buttons to move entries: it works without a mouse. */
import { Icon } from './icons';

interface ChainEditorProps {
  label: string;
  steps: readonly string[];
  /** Steps that can be added. */
  options: readonly string[];
  onChange: (steps: string[]) => void;
}

export function ChainEditor({ label, steps, options, onChange }: ChainEditorProps) {
  const move = (index: number, by: number) => {
    const next = [...steps];
    const [step] = next.splice(index, 1);
    if (step === undefined) return;
    next.splice(index + by, 0, step);
    onChange(next);
  };
  const left = options.filter((name) => !steps.includes(name));
  return (
    <fieldset class="bare stack">
      <legend class="soft small">{label}</legend>
      <ol class="order">
        {steps.map((step, index) => (
          <li key={step}>
            <span>
              {index + 1}. {step}
            </span>
            <button
              type="button"
              class="btn icon small"
              aria-label={`Move ${step} up`}
              disabled={index === 0}
              onClick={() => move(index, -1)}
            >
              <Icon name="up" />
            </button>
            <button
              type="button"
              class="btn icon small"
              aria-label={`Move ${step} down`}
              disabled={index === steps.length - 1}
              onClick={() => move(index, 1)}
            >
              <Icon name="down" />
            </button>
            <button
              type="button"
              class="btn icon small"
              aria-label={`Remove ${step}`}
              onClick={() => onChange(steps.filter((one) => one !== step))}
            >
              <Icon name="close" />
            </button>
          </li>
        ))}
      </ol>
      {left.length > 0 && (
        <select
          class="field"
          aria-label={`Add to: ${label}`}
          value=""
          onChange={(event) => {
            if (event.currentTarget.value !== '') onChange([...steps, event.currentTarget.value]);
          }}
        >
          <option value="">Add a step…</option>
          {left.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      )}
    </fieldset>
  );
}

/** An ordered list with buttons to move entries: it works without a mouse. */
import { Icon, type IconName } from './icons';
import { Select } from './parts';

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
    const [step = ''] = next.splice(index, 1);
    next.splice(index + by, 0, step);
    onChange(next);
  };
  const button = (name: string, icon: IconName, isDisabled: boolean, act: () => void) => (
    <button type="button" class="btn icon small" aria-label={name} disabled={isDisabled} onClick={act}>
      <Icon name={icon} />
    </button>
  );
  const left = options.filter((name) => !steps.includes(name));
  return (
    <fieldset class="stack">
      <legend class="soft small">{label}</legend>
      <ol class="stack order">
        {steps.map((step, index) => (
          <li key={step}>
            <span>
              {index + 1}. {step}
            </span>
            {button(`Move ${step} up`, 'up', index === 0, () => move(index, -1))}
            {button(`Move ${step} down`, 'down', index === steps.length - 1, () => move(index, 1))}
            {button(`Remove ${step}`, 'close', false, () => onChange(steps.filter((one) => one !== step)))}
          </li>
        ))}
      </ol>
      {left.length > 0 && (
        <Select
          label={`Add to: ${label}`}
          value=""
          options={[['', 'Add a step…'], ...left.map((name) => [name, name] as const)]}
          onChange={(name) => name !== '' && onChange([...steps, name])}
        />
      )}
    </fieldset>
  );
}

/** Small components for many pages. */
import type { ComponentChildren } from 'preact';
import { isMerchantPool, type PodState, poolName, stateOf, stateText, type Tone } from '../labels';
import { addressOf, closePanel, type Route } from '../routes';
import { clockText, durationText, useSeconds } from '../time';
import type { Pod, Skipped } from '../types';
import { Icon, type IconName } from './icons';

/** A time in the viewer's zone; the title has the exact one. */
export function Time({ at }: { at: string }) {
  return (
    <time dateTime={at} title={at}>
      {clockText(at)}
    </time>
  );
}

/** The time since a moment, updated every second. */
export function Age({ since }: { since: string }) {
  const now = useSeconds();
  return (
    <time dateTime={since} title={since}>
      {durationText((now - Date.parse(since)) / 1000)}
    </time>
  );
}

/** The time until a lease expires; the last ten seconds are highlighted. `lead` precedes it unless it is overdue. */
export function Countdown({ until, lead = '' }: { until: string | null; lead?: string }) {
  const now = useSeconds();
  if (until === null) return <span class="soft">{lead}…</span>;
  const seconds = (Date.parse(until) - now) / 1000;
  const tone = seconds <= 0 ? 'tone-bad' : seconds < 10 ? 'tone-warn' : '';
  return (
    <time dateTime={until} title={until} class={tone}>
      {seconds <= 0 ? `overdue ${durationText(-seconds)}` : `${lead}${durationText(seconds)}`}
    </time>
  );
}

export function Chip(props: { tone?: Tone; icon?: IconName; children: ComponentChildren }) {
  return (
    <span class="chip" data-tone={props.tone}>
      {props.icon && <Icon name={props.icon} />}
      {props.children}
    </span>
  );
}

export function PoolChip({ pool }: { pool: string }) {
  const merchant = isMerchantPool(pool);
  return (
    <span class="chip" data-is={merchant ? 'merchant' : undefined} title={pool}>
      {merchant && <Icon name="star" />}
      {poolName(pool)}
      {merchant && <span class="hidden-visually">, a merchant’s own pool</span>}
    </span>
  );
}

/** The pools a call tries, in order, and the skipped steps with their reasons. */
export function Chain({ chain, skipped = [] }: { chain: readonly string[]; skipped?: readonly Skipped[] }) {
  if (chain.length === 0 && skipped.length === 0) return <span class="soft">no pool</span>;
  return (
    <span class="chain">
      {chain.map((pool, index) => (
        <>
          {index > 0 && <i aria-hidden="true">→</i>}
          <PoolChip pool={pool} />
        </>
      ))}
      {skipped.map(({ step, reason }) => (
        <span class="soft small">
          {' '}
          ({step} skipped: {reason})
        </span>
      ))}
    </span>
  );
}

/** The sign of a state, as in the pictures of the pools. */
export const StateSign = ({ state }: { state: PodState | 'missing' }) => (
  <i class="cell" data-is={state} data-full={state === 'busy' ? '' : undefined} aria-hidden="true" />
);

export function PodMark({ pod }: { pod: Pod }) {
  return (
    <span class="mark">
      <StateSign state={stateOf(pod)} />
      <span class="cut" title={stateText(pod)}>
        {stateText(pod)}
      </span>
    </span>
  );
}

export const PodLink = ({ name, query }: { name: string; query?: Route['query'] }) => (
  <a class="link mono" href={addressOf('pods', name, query)}>
    {name}
  </a>
);

export const CallLink = ({ sid, query }: { sid: string; query?: Route['query'] }) => (
  <a class="link mono" href={addressOf('calls', sid, query)}>
    {sid}
  </a>
);

export function Empty(props: { icon: IconName; title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <Icon name={props.icon} />
      <b>{props.title}</b>
      {props.children && <p>{props.children}</p>}
    </div>
  );
}

/** A number with its name, inside a `dl`. */
export function Figure(props: { name: string; value: string; note?: string; bad?: boolean }) {
  return (
    <div>
      <dt>{props.name}</dt>
      <dd class={props.bad ? 'tone-bad' : ''}>
        {props.value} <small>{props.note}</small>
      </dd>
    </div>
  );
}

/** Facts with their names; those without a value are left out. */
export function Pairs({ of }: { of: readonly (readonly [name: string, value: ComponentChildren])[] }) {
  const known = of.filter(([, value]) => value);
  if (known.length === 0) return null;
  return (
    <dl class="pairs">
      {known.map(([name, value]) => (
        <>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </>
      ))}
    </dl>
  );
}

interface PlainTableProps<Row> {
  /** `class` is for all cells of the column, with its head. */
  columns: readonly { head: ComponentChildren; class?: string; cell: (row: Row) => ComponentChildren }[];
  rows: readonly Row[];
  keyOf: (row: Row) => string;
}

/** A short table, with all its rows. */
export function PlainTable<Row>({ columns, rows, keyOf }: PlainTableProps<Row>) {
  return (
    <table class="plain-table">
      <thead>
        <tr>
          {columns.map((column) => (
            <th scope="col" class={column.class}>
              {column.head}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={keyOf(row)}>
            {columns.map((column) => (
              <td class={column.class}>{column.cell(row)}</td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function Note({ tone, children }: { tone?: Tone; children: ComponentChildren }) {
  return (
    <div class="note" data-tone={tone} role={tone === 'bad' ? 'alert' : undefined}>
      {children}
    </div>
  );
}

interface SelectProps {
  id?: string;
  /** For screen readers; absent where a label names it by its id. */
  label?: string;
  value: string;
  options: readonly (readonly [value: string, text: string])[];
  onChange: (value: string) => void;
}

export function Select({ id, label, value, options, onChange }: SelectProps) {
  return (
    <select
      id={id}
      class="field"
      aria-label={label}
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
    >
      {options.map(([each, text]) => (
        <option key={each} value={each}>
          {text}
        </option>
      ))}
    </select>
  );
}

interface SearchProps {
  label: string;
  placeholder: string;
  value: string;
  onInput: (value: string) => void;
  onEnter?: () => void;
}

/** The search field of a page; `/` focuses it. */
export function Search({ label, placeholder, value, onInput, onEnter }: SearchProps) {
  return (
    <div class="search">
      <Icon name="search" />
      <input
        class="field"
        type="search"
        data-search
        aria-label={label}
        placeholder={placeholder}
        value={value}
        maxLength={256}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => onInput(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === 'Enter') onEnter?.();
          if (event.key === 'Escape') event.currentTarget.blur();
        }}
      />
      {value === '' && <kbd aria-hidden="true">/</kbd>}
    </div>
  );
}

interface ChoicesProps<T extends string> {
  label: string;
  value: T;
  /** `title` is for a text that is only an icon. */
  options: readonly { value: T; text: ComponentChildren; n?: number; title?: string }[];
  onChange: (value: T) => void;
}

export function Choices<T extends string>({ label, value, options, onChange }: ChoicesProps<T>) {
  return (
    <fieldset class="choices">
      <legend class="hidden-visually">{label}</legend>
      {options.map((option) => (
        <button
          type="button"
          aria-pressed={option.value === value}
          aria-label={option.title}
          title={option.title}
          onClick={() => onChange(option.value)}
        >
          {option.text}
          {option.n !== undefined && <span class="n">{option.n}</span>}
        </button>
      ))}
    </fieldset>
  );
}

/** Content that may be larger than its place; it can be scrolled by keyboard too. */
export function Scroll({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <section class="scroll" tabIndex={0} aria-label={label}>
      {children}
    </section>
  );
}

/** The panel of a call or a pod at the side of a table. */
export function Panel({ kind, id, children }: { kind: string; id: string; children: ComponentChildren }) {
  return (
    <aside class="panel" aria-label={`${kind} ${id}`}>
      <header>
        <h2 class="mono">{id}</h2>
        <button type="button" class="btn icon small" aria-label="Close" onClick={closePanel}>
          <Icon name="close" />
        </button>
      </header>
      {children}
    </aside>
  );
}

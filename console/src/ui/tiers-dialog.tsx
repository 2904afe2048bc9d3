/**
 * Edits the tiers. The router validates them before they are saved and returns the resulting chains of all merchants; a
 * concurrent change is not overwritten.
 */
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, ask, problemsOf } from '../api';
import { inChainOrder } from '../labels';
import { useRequest } from '../live/use-request';
import type { Preview, Tier, Tiers } from '../types';
import { ChainEditor } from './chain-editor';
import { ActionDialog, Notes } from './dialogs';
import { Icon } from './icons';
import { notify } from './messages';
import { Chain, Pairs, Select } from './parts';

interface Draft {
  key: number;
  name: string;
  type: string;
  target: string;
  maxCalls: string;
}

let nextKey = 0;
const draftOf = (name: string, tier?: Tier): Draft => ({
  key: ++nextKey,
  name,
  type: tier?.type ?? 'exclusive',
  target: String(tier?.target ?? 1),
  maxCalls: String(tier?.max_concurrent ?? 3),
});
/** Text that is not a number is sent as it is: the router's error is shown. */
const numberOf = (text: string) => (/^\d+$/.test(text.trim()) ? Number(text) : text);

/** The dialog does not edit `hold`: without it, saving would turn waiting off. */
function documentOf(drafts: readonly Draft[], chain: readonly string[], hold: Tiers['hold']) {
  return {
    tiers: Object.fromEntries(
      drafts.map(({ name, type, target, maxCalls }) => [
        name.trim(),
        { type, target: numberOf(target), ...(type === 'shared' && { max_concurrent: numberOf(maxCalls) }) },
      ]),
    ),
    default_chain: chain,
    ...(hold && { hold }),
  };
}

/** One request per pause in typing, not per key. */
const previewDelayMs = 200;

export function TiersDialog({ config, onClose }: { config: Tiers; onClose: () => void }) {
  const [base] = useState(config.version);
  const [drafts, setDrafts] = useState(() =>
    inChainOrder(Object.keys(config.tiers), config.default_chain).map((name) =>
      draftOf(name, config.tiers[name]),
    ),
  );
  const [chain, setChain] = useState<readonly string[]>(config.default_chain);
  const wanted = documentOf(drafts, chain, config.hold);
  const [previewed, setPreviewed] = useState(wanted);
  useEffect(() => {
    const timer = setTimeout(() => setPreviewed(wanted), previewDelayMs);
    return () => clearTimeout(timer);
  }, [JSON.stringify(wanted)]);
  const { value, error } = useRequest<Preview>('/tiers/preview', { intervalMs: 0, body: previewed });
  // The last preview stays until the next one.
  const last = useRef<Preview | undefined>(undefined);
  const preview = value ?? last.current;
  last.current = preview;
  // Without an answer the router still validates on save.
  const isRejected = error instanceof ApiError && !error.isPassing;
  const names = drafts.map(({ name }) => name.trim()).filter(Boolean);

  const change = (key: number, to: Partial<Draft>) => {
    const before = drafts.find((draft) => draft.key === key);
    setDrafts(drafts.map((draft) => (draft.key === key ? { ...draft, ...to } : draft)));
    if (to.name !== undefined && before)
      setChain(chain.map((step) => (step === before.name ? (to.name ?? step) : step)));
  };
  const remove = (draft: Draft) => {
    setDrafts(drafts.filter((one) => one !== draft));
    setChain(chain.filter((step) => step !== draft.name));
  };
  const save = async () => {
    if (new Set(names).size < names.length) throw new Error('Two tiers have the same name.');
    const headers = { 'if-match': `"${base}"` };
    const { version, warnings = [] } = await ask<Tiers>('/tiers', { method: 'PUT', body: wanted, headers });
    notify([`Tiers saved as version ${version}.`, ...warnings].join(' '));
  };

  return (
    <ActionDialog
      title="Edit tiers"
      wide
      verb="Save"
      isDisabled={isRejected || preview?.valid === false}
      problems={isRejected ? problemsOf(error) : (preview?.problems ?? [])}
      act={save}
      onClose={onClose}
    >
      <ul class="stack tier-drafts" aria-label="Tiers">
        {drafts.map((draft) => (
          <TierDraft
            key={draft.key}
            draft={draft}
            onChange={(to) => change(draft.key, to)}
            onRemove={() => remove(draft)}
          />
        ))}
      </ul>
      <div>
        <button type="button" class="btn small" onClick={() => setDrafts([...drafts, draftOf('')])}>
          <Icon name="plus" /> Add tier
        </button>
      </div>
      <ChainEditor label="Default chain" steps={chain} options={names} onChange={setChain} />
      <Notes tone="warn" texts={preview?.warnings ?? []} />
      {preview?.valid && (
        <section class="stack" aria-label="Preview of the chains">
          <h3>Resulting chains</h3>
          <Pairs
            of={preview.chains.map(({ merchant_id, chain, skipped }) => [
              merchant_id ?? 'no merchant',
              <Chain chain={chain} skipped={skipped} />,
            ])}
          />
        </section>
      )}
    </ActionDialog>
  );
}

interface TierDraftProps {
  draft: Draft;
  onChange: (to: Partial<Draft>) => void;
  onRemove: () => void;
}

function TierDraft({ draft, onChange, onRemove }: TierDraftProps) {
  const { name, type, target, maxCalls } = draft;
  const isShared = type === 'shared';
  const number = (label: string, value: string, field: 'target' | 'maxCalls', isDisabled = false) => (
    <label class="label">
      <span>{label}</span>
      <input
        class="field"
        inputMode="numeric"
        aria-label={`${label} of ${name}`}
        disabled={isDisabled}
        value={value}
        onInput={(event) => onChange({ [field]: event.currentTarget.value })}
      />
    </label>
  );
  return (
    <li class="row">
      <label class="label">
        <span>Name</span>
        <input
          class="field"
          aria-label="Name of the tier"
          value={name}
          maxLength={64}
          onInput={(event) => onChange({ name: event.currentTarget.value })}
        />
      </label>
      <div class="label">
        <span>Type</span>
        <Select
          label={`Type of ${name}`}
          value={type}
          options={['exclusive', 'shared'].map((each) => [each, each])}
          onChange={(next) => onChange({ type: next })}
        />
      </div>
      {number('Target', target, 'target')}
      {/* A pod of an exclusive tier always has one call. */}
      {number('Calls per pod', isShared ? maxCalls : '1', 'maxCalls', !isShared)}
      <button type="button" class="btn icon" aria-label={`Remove ${name}`} onClick={onRemove}>
        <Icon name="close" />
      </button>
    </li>
  );
}

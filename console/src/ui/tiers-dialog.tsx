/**
 * Edits the tiers. The router validates them before they are saved and returns the resulting chains of all merchants; a
 * concurrent change is not overwritten.
 */
import { useEffect, useState } from 'preact/hooks';
import { ApiError, ask, sentenceOf } from '../api';
import { inChainOrder } from '../labels';
import type { Preview, Tier, Tiers } from '../types';
import { ChainEditor } from './chain-editor';
import { Icon } from './icons';
import { notify } from './messages';
import { Chain, Dialog, Note } from './parts';

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

interface TiersDialogProps {
  config: Tiers;
  onSaved: () => void;
  onClose: () => void;
}

export function TiersDialog({ config, onSaved, onClose }: TiersDialogProps) {
  const [base] = useState(config.version);
  const [drafts, setDrafts] = useState(() =>
    inChainOrder(Object.keys(config.tiers), config.default_chain).map((name) =>
      draftOf(name, config.tiers[name]),
    ),
  );
  const [chain, setChain] = useState<readonly string[]>(config.default_chain);
  const [problems, setProblems] = useState<readonly string[]>([]);
  const [isBusy, setBusy] = useState(false);
  const wanted = documentOf(drafts, chain, config.hold);
  const preview = usePreview(JSON.stringify(wanted));
  const names = drafts.map(({ name }) => name.trim()).filter(Boolean);
  const isDoubled = new Set(names).size < names.length;

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
  const save = async (event: Event) => {
    event.preventDefault();
    if (isDoubled) return setProblems(['Two tiers have the same name.']);
    setBusy(true);
    try {
      const saved = await ask<Tiers>('/tiers', {
        method: 'PUT',
        body: wanted,
        headers: { 'if-match': `"${base}"` },
      });
      notify(
        `Tiers saved as version ${saved.version}.${saved.warnings ? ` ${saved.warnings.join(' ')}` : ''}`,
      );
      onSaved();
      onClose();
    } catch (error) {
      setProblems(
        error instanceof ApiError && error.problems.length > 0 ? error.problems : [sentenceOf(error)],
      );
      setBusy(false);
    }
  };

  const wrong = problems.length > 0 ? problems : (preview?.problems ?? []);
  return (
    <Dialog title="Edit tiers" wide onClose={onClose}>
      <form class="stack" onSubmit={save}>
        <ul class="tier-drafts" aria-label="Tiers">
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
        {wrong.length > 0 && (
          <Note tone="bad">
            {wrong.map((problem) => (
              <div key={problem}>{problem}</div>
            ))}
          </Note>
        )}
        {preview && preview.warnings.length > 0 && (
          <Note tone="warn">
            {preview.warnings.map((warning) => (
              <div key={warning}>{warning}</div>
            ))}
          </Note>
        )}
        {preview?.valid && (
          <section class="stack" aria-label="Preview of the chains">
            <h3>Resulting chains</h3>
            <dl class="pairs">
              {preview.chains.map((line) => (
                <>
                  <dt>{line.merchant_id ?? 'no merchant'}</dt>
                  <dd>
                    <Chain chain={line.chain} skipped={line.skipped} />
                  </dd>
                </>
              ))}
            </dl>
          </section>
        )}
        <div class="row end">
          <button type="button" class="btn" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="btn primary" disabled={isBusy || preview?.valid === false}>
            Save
          </button>
        </div>
      </form>
    </Dialog>
  );
}

interface TierDraftProps {
  draft: Draft;
  onChange: (to: Partial<Draft>) => void;
  onRemove: () => void;
}

/** Not a table row: on a phone the fields take two lines, each with its label above. */
function TierDraft({ draft, onChange, onRemove }: TierDraftProps) {
  const { name, type, target, maxCalls } = draft;
  return (
    <li>
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
      <label class="label">
        <span>Type</span>
        <select
          class="field"
          aria-label={`Type of ${name}`}
          value={type}
          onChange={(event) => onChange({ type: event.currentTarget.value })}
        >
          <option value="exclusive">exclusive</option>
          <option value="shared">shared</option>
        </select>
      </label>
      <label class="label">
        <span>Target</span>
        <input
          class="field"
          inputMode="numeric"
          aria-label={`Target of ${name}`}
          value={target}
          onInput={(event) => onChange({ target: event.currentTarget.value })}
        />
      </label>
      <label class="label">
        <span>Calls per pod</span>
        <input
          class="field"
          inputMode="numeric"
          aria-label={`Calls per pod of ${name}`}
          // A pod of an exclusive tier always has one.
          disabled={type !== 'shared'}
          value={type === 'shared' ? maxCalls : '1'}
          onInput={(event) => onChange({ maxCalls: event.currentTarget.value })}
        />
      </label>
      <button type="button" class="btn icon" aria-label={`Remove ${name}`} onClick={onRemove}>
        <Icon name="close" />
      </button>
    </li>
  );
}

/** What the router says of a draft, a moment after the last change; undefined where it cannot tell. */
function usePreview(text: string): Preview | undefined {
  const [preview, setPreview] = useState<Preview>();
  useEffect(() => {
    let isCurrent = true;
    const timer = setTimeout(async () => {
      try {
        const answer = await ask<Preview>('/tiers/preview', { method: 'POST', body: JSON.parse(text) });
        if (isCurrent) setPreview(answer);
      } catch (error) {
        // Without a preview the router still validates on save.
        const isAbsent =
          !(error instanceof ApiError) || error.isAbsent || error.status === 0 || error.status >= 500;
        const problems =
          error instanceof ApiError && error.problems.length > 0 ? error.problems : [sentenceOf(error)];
        if (isCurrent)
          setPreview(
            isAbsent ? undefined : { valid: false, problems: [...problems], warnings: [], chains: [] },
          );
      }
    }, 200);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [text]);
  return preview;
}

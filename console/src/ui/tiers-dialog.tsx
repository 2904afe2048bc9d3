/**
 * Editing the tiers. The router itself says, before anything is saved, whether they are right and which chains every
 * merchant would get; a version that somebody else wrote meanwhile is not overwritten.
 */
import { useEffect, useState } from 'preact/hooks';
import { ApiError, ask, sentenceOf } from '../api';
import type { Preview, Tier, Tiers } from '../shapes';
import { ChainEditor } from './chain-editor';
import { Icon } from './icons';
import { Chain, Dialog, Note, Wide } from './parts';
import { tell } from './telling';

interface Draft {
  key: number;
  name: string;
  type: string;
  target: string;
  most: string;
}

let nextKey = 0;
const draftOf = (name: string, tier?: Tier): Draft => ({
  key: ++nextKey,
  name,
  type: tier?.type ?? 'exclusive',
  target: String(tier?.target ?? 1),
  most: String(tier?.max_concurrent ?? 3),
});
/** What is no number stays a text: the router's own sentence about it is shown. */
const numberOf = (text: string) => (/^\d+$/.test(text.trim()) ? Number(text) : text);

function documentOf(drafts: readonly Draft[], chain: readonly string[]) {
  return {
    tiers: Object.fromEntries(
      drafts.map(({ name, type, target, most }) => [
        name.trim(),
        { type, target: numberOf(target), ...(type === 'shared' && { max_concurrent: numberOf(most) }) },
      ]),
    ),
    default_chain: chain,
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
    Object.entries(config.tiers).map(([name, tier]) => draftOf(name, tier)),
  );
  const [chain, setChain] = useState<readonly string[]>(config.default_chain);
  const [problems, setProblems] = useState<readonly string[]>([]);
  const [isBusy, setBusy] = useState(false);
  const wanted = documentOf(drafts, chain);
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
      tell(`Tiers saved as version ${saved.version}.${saved.warnings ? ` ${saved.warnings.join(' ')}` : ''}`);
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
        <Wide label="Tiers">
          <table class="plain-table tight">
            <thead>
              <tr>
                <th scope="col">Name</th>
                <th scope="col">Type</th>
                <th scope="col">Target</th>
                <th scope="col">Calls a pod</th>
                <th scope="col">
                  <span class="hidden-visually">Remove</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {drafts.map((draft) => (
                <tr key={draft.key}>
                  <td>
                    <input
                      class="field"
                      aria-label="Name of the tier"
                      value={draft.name}
                      maxLength={64}
                      size={12}
                      onInput={(event) => change(draft.key, { name: event.currentTarget.value })}
                    />
                  </td>
                  <td>
                    <select
                      class="field"
                      aria-label={`Type of ${draft.name}`}
                      value={draft.type}
                      onChange={(event) => change(draft.key, { type: event.currentTarget.value })}
                    >
                      <option value="exclusive">exclusive</option>
                      <option value="shared">shared</option>
                    </select>
                  </td>
                  <td>
                    <input
                      class="field"
                      inputMode="numeric"
                      size={6}
                      aria-label={`Target of ${draft.name}`}
                      value={draft.target}
                      onInput={(event) => change(draft.key, { target: event.currentTarget.value })}
                    />
                  </td>
                  <td>
                    {draft.type === 'shared' ? (
                      <input
                        class="field"
                        inputMode="numeric"
                        size={5}
                        aria-label={`Most calls on a pod of ${draft.name}`}
                        value={draft.most}
                        onInput={(event) => change(draft.key, { most: event.currentTarget.value })}
                      />
                    ) : (
                      <span class="soft">1</span>
                    )}
                  </td>
                  <td>
                    <button
                      type="button"
                      class="btn icon small"
                      aria-label={`Remove ${draft.name}`}
                      onClick={() => remove(draft)}
                    >
                      <Icon name="close" />
                    </button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Wide>
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
            <h3>With this, calls would try</h3>
            <dl class="pairs">
              {preview.chains.map((line) => (
                <>
                  <dt>{line.merchant_id ?? 'without a merchant'}</dt>
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
        // A router that cannot tell now, or at all, still judges what is saved.
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

/** The rules of one merchant: where its calls begin, its own pool, or a chain of its own. */
import { useState } from 'preact/hooks';
import { ApiError, ask, sentenceOf } from '../api';
import type { Merchant } from '../shapes';
import { ChainEditor } from './chain-editor';
import { Dialog, Note } from './parts';
import { tell } from './telling';

interface MerchantDialogProps {
  merchant: Merchant | undefined;
  tiers: readonly string[];
  onSaved: () => void;
  onClose: () => void;
}

const nameRule = /^[A-Za-z0-9_.-]{1,64}$/;

export function MerchantDialog({ merchant, tiers, onSaved, onClose }: MerchantDialogProps) {
  const [id, setId] = useState(merchant?.merchant_id ?? '');
  const [tier, setTier] = useState(merchant?.tier ?? '');
  const [pool, setPool] = useState(merchant?.pool ?? '');
  const [fallback, setFallback] = useState<readonly string[]>(merchant?.fallback ?? []);
  const [problems, setProblems] = useState<readonly string[]>([]);
  const [isBusy, setBusy] = useState(false);

  const save = async (event: Event) => {
    event.preventDefault();
    const wrong = [
      !nameRule.test(id) && 'The id has 1 to 64 of A-Z a-z 0-9 _ . -',
      pool !== '' && !nameRule.test(pool) && 'The name of the pool has 1 to 64 of A-Z a-z 0-9 _ . -',
    ].filter((text): text is string => text !== false);
    setProblems(wrong);
    if (wrong.length > 0) return;
    setBusy(true);
    try {
      const body = {
        ...(tier !== '' && { tier }),
        ...(pool !== '' && { pool }),
        ...(fallback.length > 0 && { fallback }),
      };
      const saved = await ask<Merchant>(`/merchants/${encodeURIComponent(id)}`, { method: 'PUT', body });
      tell(`Calls of ${saved.merchant_id} now try ${saved.chain.join(', ') || 'no pool'}.`);
      onSaved();
      onClose();
    } catch (error) {
      setProblems(
        error instanceof ApiError && error.problems.length > 0 ? error.problems : [sentenceOf(error)],
      );
      setBusy(false);
    }
  };

  return (
    <Dialog title={merchant ? `Rules of ${merchant.merchant_id}` : 'Add a merchant'} onClose={onClose}>
      <form class="stack" onSubmit={save}>
        {!merchant && (
          <label class="label" for="merchant-id">
            Id of the merchant
            <input
              id="merchant-id"
              class="field"
              value={id}
              maxLength={64}
              onInput={(event) => setId(event.currentTarget.value)}
            />
          </label>
        )}
        <label class="label" for="merchant-pool">
          Its own pool, tried first (empty: none)
          <input
            id="merchant-pool"
            class="field"
            value={pool}
            maxLength={64}
            onInput={(event) => setPool(event.currentTarget.value)}
          />
        </label>
        <label class="label" for="merchant-tier">
          Tier where the default chain begins for it
          <select
            id="merchant-tier"
            class="field"
            value={tier}
            onChange={(event) => setTier(event.currentTarget.value)}
          >
            <option value="">At its beginning</option>
            {tiers.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <ChainEditor
          label="A chain of its own, instead of the default one (empty: the default)"
          steps={fallback}
          options={tiers}
          onChange={setFallback}
        />
        {problems.length > 0 && (
          <Note tone="bad">
            {problems.map((problem) => (
              <div key={problem}>{problem}</div>
            ))}
          </Note>
        )}
        <div class="row end">
          <button type="button" class="btn" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="btn primary" disabled={isBusy}>
            Save
          </button>
        </div>
      </form>
    </Dialog>
  );
}

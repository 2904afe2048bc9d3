/** The rules of one merchant (tier, own pool, own chain) and the resulting chain. */
import { useRef, useState } from 'preact/hooks';
import { type MerchantConfig, resolveChain } from '../../../src/calls/chain.js';
import type { TierConfig } from '../../../src/config/tiers.js';
import { ApiError, ask, sentenceOf } from '../api';
import { inChainOrder, poolName } from '../labels';
import { useLive } from '../live/use-live';
import type { Merchant, Tiers } from '../types';
import { ChainEditor } from './chain-editor';
import { limitsText } from './event-line';
import { notify } from './messages';
import { Chain, Dialog, Note } from './parts';

interface MerchantDialogProps {
  merchant: Merchant | undefined;
  config: Tiers;
  onSaved: () => void;
  onClose: () => void;
}

/** Resolves the chain as the router does. */
function chainFor(
  { tiers, default_chain }: Tiers,
  rules: MerchantConfig,
  pools: readonly string[] | undefined,
) {
  const known = pools?.filter((pool) => pool.startsWith('merchant:')).map((pool) => pool.slice(9));
  const config: TierConfig = {
    tiers: Object.fromEntries(
      Object.entries(tiers).map(([name, { type, target, max_concurrent }]) => [
        name,
        { type: type === 'shared' ? 'shared' : 'exclusive', target, maxConcurrent: max_concurrent ?? 1 },
      ]),
    ),
    defaultChain: default_chain,
  };
  return resolveChain(config, rules, known && new Set(known));
}

/** What the dialog does not edit: without it, saving would delete it. */
function limitsOf(merchant: Merchant | undefined) {
  const { merchant_id, tier, pool, fallback, chain, skipped, ...limits } = merchant ?? ({} as Merchant);
  return limits;
}

const nameRule = /^[A-Za-z0-9_.-]{1,64}$/;
const nameWords = 'Only letters from A to Z, digits, dots, dashes and underscores, at most 64 of them.';

export function MerchantDialog({ merchant, config, onSaved, onClose }: MerchantDialogProps) {
  const [id, setId] = useState(merchant?.merchant_id ?? '');
  const [tier, setTier] = useState(merchant?.tier ?? '');
  const [pool, setPool] = useState(merchant?.pool ?? '');
  const [fallback, setFallback] = useState<readonly string[]>(merchant?.fallback ?? []);
  const [problems, setProblems] = useState<readonly string[]>([]);
  const [isBusy, setBusy] = useState(false);
  /** Errors are shown after the first attempt to save. */
  const [isJudged, setJudged] = useState(false);
  const idField = useRef<HTMLInputElement>(null);
  const poolField = useRef<HTMLInputElement>(null);
  const idWrong = !isJudged || nameRule.test(id) ? '' : id === '' ? 'It needs an id.' : nameWords;
  const poolWrong = !isJudged || pool === '' || nameRule.test(pool) ? '' : nameWords;
  const pools = useLive((state) => state.status?.pools);
  const tiers = inChainOrder(Object.keys(config.tiers), config.default_chain);
  const limits = limitsText(limitsOf(merchant));
  const rules = {
    ...limitsOf(merchant),
    ...(tier !== '' && { tier }),
    ...(pool !== '' && { pool }),
    ...(fallback.length > 0 && { fallback }),
  };
  const { steps, skipped } = chainFor(config, rules, pools && Object.keys(pools));

  const save = async (event: Event) => {
    event.preventDefault();
    setProblems([]);
    setJudged(true);
    if (!nameRule.test(id)) return idField.current?.focus();
    if (pool !== '' && !nameRule.test(pool)) return poolField.current?.focus();
    setBusy(true);
    try {
      const saved = await ask<Merchant>(`/merchants/${encodeURIComponent(id)}`, {
        method: 'PUT',
        body: rules,
      });
      notify(`Calls of ${saved.merchant_id} now try ${saved.chain.map(poolName).join(', ') || 'no pool'}.`);
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
          <div class="label">
            <label for="merchant-id">Merchant id</label>
            <input
              id="merchant-id"
              ref={idField}
              class="field"
              value={id}
              maxLength={64}
              aria-invalid={idWrong !== ''}
              aria-describedby={idWrong ? 'merchant-id-wrong' : undefined}
              onInput={(event) => setId(event.currentTarget.value)}
            />
            <Wrong id="merchant-id-wrong" text={idWrong} />
          </div>
        )}
        <div class="label">
          <label for="merchant-pool">Own pool, tried first (empty: none)</label>
          <input
            id="merchant-pool"
            ref={poolField}
            class="field"
            value={pool}
            maxLength={64}
            aria-invalid={poolWrong !== ''}
            aria-describedby={poolWrong ? 'merchant-pool-wrong' : undefined}
            onInput={(event) => setPool(event.currentTarget.value)}
          />
          <Wrong id="merchant-pool-wrong" text={poolWrong} />
        </div>
        <label class="label" for="merchant-tier">
          Start of the default chain
          <select
            id="merchant-tier"
            class="field"
            value={tier}
            onChange={(event) => setTier(event.currentTarget.value)}
          >
            <option value="">First tier</option>
            {tiers.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <ChainEditor
          label="Own chain instead of the default chain (empty: default)"
          steps={fallback}
          options={tiers}
          onChange={setFallback}
        />
        <section class="stack" aria-label="Preview of the chain">
          <h3>Resulting chain</h3>
          <Chain chain={steps} skipped={skipped} />
        </section>
        {limits !== '' && (
          <p class="soft small">
            Kept as they are: {limits}. Change them with <code>smart-router merchants set</code>.
          </p>
        )}
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

/** The error of a field, below it; the focused field refers to it. */
const Wrong = ({ id, text }: { id: string; text: string }) =>
  text === '' ? null : (
    <span id={id} class="tone-bad">
      {text}
    </span>
  );

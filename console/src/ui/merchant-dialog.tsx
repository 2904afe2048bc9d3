/** The rules of one merchant (tier, own pool, own chain) and the resulting chain. */
import { useState } from 'preact/hooks';
import { type MerchantConfig, resolveChain } from '../../../src/calls/chain.js';
import type { TierConfig } from '../../../src/config/tiers.js';
import { ask } from '../api';
import { inChainOrder, poolName } from '../labels';
import { useLive } from '../live/use-live';
import type { Merchant, Tiers } from '../types';
import { ChainEditor } from './chain-editor';
import { ActionDialog } from './dialogs';
import { limitsText } from './event-line';
import { notify } from './messages';
import { Chain, Select } from './parts';

interface MerchantDialogProps {
  /** Undefined: a new one. */
  merchant?: Merchant;
  config: Tiers;
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

export function MerchantDialog({ merchant, config, onClose }: MerchantDialogProps) {
  const [id, setId] = useState(merchant?.merchant_id ?? '');
  const [tier, setTier] = useState(merchant?.tier ?? '');
  const [pool, setPool] = useState(merchant?.pool ?? '');
  const [fallback, setFallback] = useState<readonly string[]>(merchant?.fallback ?? []);
  /** Errors are shown after the first attempt to save. */
  const [isJudged, setJudged] = useState(false);
  const idProblem = nameRule.test(id) ? '' : id === '' ? 'Enter an id.' : nameWords;
  const poolProblem = pool === '' || nameRule.test(pool) ? '' : nameWords;
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

  const save = async () => {
    setJudged(true);
    const wrong = idProblem ? 'merchant-id' : poolProblem ? 'merchant-pool' : undefined;
    if (wrong) {
      document.getElementById(wrong)?.focus();
      return false;
    }
    const path = `/merchants/${encodeURIComponent(id)}`;
    const saved = await ask<Merchant>(path, { method: 'PUT', body: rules });
    notify(`Calls of ${saved.merchant_id} now try ${saved.chain.map(poolName).join(', ') || 'no pool'}.`);
  };

  return (
    <ActionDialog
      title={merchant ? `Rules of ${merchant.merchant_id}` : 'Add a merchant'}
      verb="Save"
      act={save}
      onClose={onClose}
    >
      {!merchant && (
        <NameField
          id="merchant-id"
          label="Merchant id"
          value={id}
          problem={isJudged ? idProblem : ''}
          onInput={setId}
        />
      )}
      <NameField
        id="merchant-pool"
        label="Own pool, tried first (empty: none)"
        value={pool}
        problem={isJudged ? poolProblem : ''}
        onInput={setPool}
      />
      <label class="label" for="merchant-tier">
        Start of the default chain
        <Select
          id="merchant-tier"
          value={tier}
          options={[['', 'First tier'], ...tiers.map((name) => [name, name] as const)]}
          onChange={setTier}
        />
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
    </ActionDialog>
  );
}

interface NameFieldProps {
  id: string;
  label: string;
  value: string;
  /** Shown below the field, which refers to it; empty: none. */
  problem: string;
  onInput: (value: string) => void;
}

function NameField({ id, label, value, problem, onInput }: NameFieldProps) {
  return (
    <div class="label">
      <label for={id}>{label}</label>
      <input
        id={id}
        class="field"
        value={value}
        maxLength={64}
        aria-invalid={problem !== ''}
        aria-describedby={problem ? `${id}-wrong` : undefined}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      {problem && (
        <span id={`${id}-wrong`} class="tone-bad">
          {problem}
        </span>
      )}
    </div>
  );
}

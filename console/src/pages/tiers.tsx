/** Tiers, merchants with their chains, and the changes of both. */
import { useState } from 'preact/hooks';
import { ask } from '../api';
import { count, inChainOrder } from '../labels';
import { useLive, useTopics } from '../live/use-live';
import { useRequest } from '../live/use-request';
import type { EventPage, Merchant, RouterEvent, Tiers } from '../types';
import { ActionDialog, DialogButton } from '../ui/dialogs';
import { limitsText, PastEvents } from '../ui/event-line';
import { Icon } from '../ui/icons';
import { MerchantDialog } from '../ui/merchant-dialog';
import { notify } from '../ui/messages';
import { Chain, Empty, Note, PlainTable, Scroll } from '../ui/parts';
import { TiersDialog } from '../ui/tiers-dialog';

const when = ({ type }: RouterEvent) => type === 'tiers_changed' || type === 'merchant_changed';

export function TiersPage() {
  useTopics('status');
  const tiers = useRequest<Tiers>('/tiers', { when });
  const merchants = useRequest<{ merchants: Merchant[] }>('/merchants', { when });
  const past = useRequest<EventPage>('/events/search?type=tiers_changed,merchant_changed&limit=50', { when });
  const pools = useLive((state) => state.status?.pools);
  const differs = useLive((state) => state.status?.tier_config_differs ?? false);
  const [edited, setEdited] = useState<Merchant>();
  const config = tiers.value;
  const rows = inChainOrder(Object.keys(config?.tiers ?? {}), config?.default_chain ?? []).flatMap((name) => {
    const tier = config?.tiers[name];
    return tier ? [{ name, ...tier, assigned: pools?.[name]?.assigned }] : [];
  });
  return (
    <div class="page">
      {tiers.problem && <Note tone="bad">{tiers.problem}</Note>}
      {differs && (
        <Note tone="warn">
          <code>TIER_CONFIG</code> of this router differs from the configuration in the store, which takes
          precedence until the store is empty.
        </Note>
      )}
      <section class="card" aria-labelledby="tiers">
        <header>
          <h2 id="tiers">Tiers</h2>
          <span class="row">
            <span class="soft small">{config ? `version ${config.version}` : ''}</span>
            {config && (
              <DialogButton dialog={(onClose) => <TiersDialog config={config} onClose={onClose} />}>
                Edit tiers
              </DialogButton>
            )}
          </span>
        </header>
        {config && (
          <div class="stack">
            <Scroll label="Table of tiers">
              <PlainTable
                rows={rows}
                keyOf={({ name }) => name}
                columns={[
                  { head: 'Tier', cell: ({ name }) => <b>{name}</b> },
                  { head: 'Type', cell: ({ type }) => type },
                  { head: 'Target', class: 'num', cell: ({ target }) => count(target) },
                  {
                    head: 'Assigned',
                    class: 'num',
                    cell: ({ target, assigned }) =>
                      assigned !== undefined && assigned < target ? (
                        <span class="tone-warn">{count(assigned)} (short)</span>
                      ) : (
                        count(assigned)
                      ),
                  },
                  { head: 'Calls per pod', class: 'num', cell: (tier) => count(tier.max_concurrent ?? 1) },
                ]}
              />
            </Scroll>
            <p class="row">
              <span class="soft small">Default chain</span>
              <Chain
                chain={config.default_chain.map((name) => (name.includes(':') ? name : `pool:${name}`))}
              />
            </p>
            {config.hold && (
              <p class="row">
                <span class="soft small">Calls that find no pod wait</span>
                up to {config.hold.max_wait}, at most {count(config.hold.max_waiting)} at once
              </p>
            )}
          </div>
        )}
      </section>

      <section class="card" aria-labelledby="merchants">
        <header>
          <h2 id="merchants">Merchants</h2>
          {config && (
            <DialogButton dialog={(onClose) => <MerchantDialog config={config} onClose={onClose} />}>
              <Icon name="plus" /> Add merchant
            </DialogButton>
          )}
        </header>
        {merchants.problem && <Note tone="bad">{merchants.problem}</Note>}
        {!merchants.value && !merchants.problem && <p class="soft">Reading…</p>}
        {merchants.value?.merchants.length === 0 ? (
          <Empty icon="tiers" title="No merchant has its own rules">
            Every call uses the default chain. Add a merchant to give it its own pool, tier or fallback.
          </Empty>
        ) : (
          <Scroll label="Table of merchants">
            <PlainTable
              rows={merchants.value?.merchants ?? []}
              keyOf={({ merchant_id }) => merchant_id}
              columns={[
                { head: 'Merchant', cell: ({ merchant_id }) => <b>{merchant_id}</b> },
                {
                  head: 'Chain of its calls',
                  cell: (one) => (
                    <>
                      <Chain chain={one.chain} skipped={one.skipped} />
                      {limitsText(one) !== '' && <div class="soft small">{limitsText(one)}</div>}
                    </>
                  ),
                },
                {
                  head: <span class="hidden-visually">Actions</span>,
                  cell: (one) => (
                    <span class="row end">
                      {config && (
                        <button
                          type="button"
                          class="btn small"
                          aria-label={`Edit ${one.merchant_id}`}
                          onClick={() => setEdited(one)}
                        >
                          Edit
                        </button>
                      )}
                      <DialogButton
                        label={`Delete ${one.merchant_id}`}
                        dialog={(onClose) => <DeleteDialog id={one.merchant_id} onClose={onClose} />}
                      >
                        Delete
                      </DialogButton>
                    </span>
                  ),
                },
              ]}
            />
          </Scroll>
        )}
        {/* Not in the table: the edits outlast the row of a merchant that another operator deletes. */}
        {config && edited && (
          <MerchantDialog merchant={edited} config={config} onClose={() => setEdited(undefined)} />
        )}
      </section>

      <section class="card" aria-labelledby="changes">
        <header>
          <h2 id="changes">Changes</h2>
        </header>
        <PastEvents past={past} none="No stored changes." />
      </section>
    </div>
  );
}

function DeleteDialog({ id, onClose }: { id: string; onClose: () => void }) {
  const remove = async () => {
    await ask(`/merchants/${encodeURIComponent(id)}`, { method: 'DELETE' });
    notify(`Rules of ${id} deleted.`);
  };
  return (
    <ActionDialog
      title={`Delete the rules of ${id}?`}
      verb="Delete"
      tone="danger"
      act={remove}
      onClose={onClose}
    >
      <p>New calls of this merchant use the default chain. Live calls are not affected.</p>
    </ActionDialog>
  );
}

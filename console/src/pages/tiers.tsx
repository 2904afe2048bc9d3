/** Tiers, merchants with their chains, and the changes of both. */
import { useState } from 'preact/hooks';
import { ask, sentenceOf } from '../api';
import { count, eventName, inChainOrder, toneOf } from '../labels';
import { useEvents, useLive, useTopics } from '../live/use-live';
import { useRequest } from '../live/use-request';
import type { EventPage, Merchant, Tiers } from '../types';
import { EventText, limitsText } from '../ui/event-line';
import { Icon } from '../ui/icons';
import { MerchantDialog } from '../ui/merchant-dialog';
import { notify } from '../ui/messages';
import { Chain, Dialog, Empty, Note, Time, Wide } from '../ui/parts';
import { TiersDialog } from '../ui/tiers-dialog';

export function TiersPage() {
  useTopics('status');
  const tiers = useRequest<Tiers>('/tiers');
  const merchants = useRequest<{ merchants: Merchant[] }>('/merchants');
  const past = useRequest<EventPage>('/events/search?type=tiers_changed,merchant_changed&limit=50');
  const pools = useLive((state) => state.status?.pools);
  const differs = useLive((state) => state.status?.tier_config_differs ?? false);
  const [isEditing, setEditing] = useState(false);
  const [merchant, setMerchant] = useState<Merchant | 'new'>();
  const [leaving, setLeaving] = useState<string>();
  const again = () => {
    tiers.again();
    merchants.again();
    past.again();
  };
  useEvents((events) => {
    if (events.some(({ type }) => type === 'tiers_changed' || type === 'merchant_changed')) again();
  });
  const config = tiers.value;
  const names = inChainOrder(Object.keys(config?.tiers ?? {}), config?.default_chain ?? []);
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
            <button type="button" class="btn small" disabled={!config} onClick={() => setEditing(true)}>
              Edit tiers
            </button>
          </span>
        </header>
        {config && (
          <div class="stack">
            <Wide label="Table of tiers">
              <table class="plain-table">
                <thead>
                  <tr>
                    <th scope="col">Tier</th>
                    <th scope="col">Type</th>
                    <th scope="col" class="num">
                      Target
                    </th>
                    <th scope="col" class="num">
                      Assigned
                    </th>
                    <th scope="col" class="num">
                      Calls per pod
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {names.map((name) => {
                    const tier = config.tiers[name];
                    const assigned = pools?.[name]?.assigned;
                    const isShort = tier !== undefined && assigned !== undefined && assigned < tier.target;
                    return (
                      <tr key={name}>
                        <td>
                          <b>{name}</b>
                        </td>
                        <td>{tier?.type}</td>
                        <td class="num">{count(tier?.target)}</td>
                        <td class={`num ${isShort ? 'tone-warn' : ''}`}>
                          {count(assigned)}
                          {isShort ? ' (short)' : ''}
                        </td>
                        <td class="num">{count(tier?.max_concurrent ?? 1)}</td>
                      </tr>
                    );
                  })}
                </tbody>
              </table>
            </Wide>
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
          <button type="button" class="btn small" onClick={() => setMerchant('new')}>
            <Icon name="plus" /> Add merchant
          </button>
        </header>
        {merchants.problem && <Note tone="bad">{merchants.problem}</Note>}
        {merchants.value?.merchants.length === 0 ? (
          <Empty icon="tiers" title="No merchant has its own rules">
            Every call uses the default chain. Add a merchant to give it its own pool, tier or fallback.
          </Empty>
        ) : (
          <Wide label="Table of merchants">
            <table class="plain-table">
              <thead>
                <tr>
                  <th scope="col">Merchant</th>
                  <th scope="col">Chain of its calls</th>
                  <th scope="col">
                    <span class="hidden-visually">Actions</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {merchants.value?.merchants.map((one) => (
                  <tr key={one.merchant_id}>
                    <td>
                      <b>{one.merchant_id}</b>
                    </td>
                    <td>
                      <Chain chain={one.chain} skipped={one.skipped} />
                      {limitsText(one) !== '' && <div class="soft small">{limitsText(one)}</div>}
                    </td>
                    <td>
                      <span class="row end">
                        <button
                          type="button"
                          class="btn small"
                          aria-label={`Edit ${one.merchant_id}`}
                          onClick={() => setMerchant(one)}
                        >
                          Edit
                        </button>
                        <button
                          type="button"
                          class="btn small"
                          aria-label={`Delete ${one.merchant_id}`}
                          onClick={() => setLeaving(one.merchant_id)}
                        >
                          Delete
                        </button>
                      </span>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Wide>
        )}
      </section>

      <section class="card" aria-labelledby="changes">
        <header>
          <h2 id="changes">Changes</h2>
        </header>
        {past.isAbsent && <p class="soft small">This router cannot search events.</p>}
        {past.problem && <Note tone="bad">{past.problem}</Note>}
        {past.value?.events.length === 0 && <p class="soft small">No stored changes.</p>}
        <ol class="line">
          {past.value?.events.map((event) => (
            <li key={event.id} data-tone={toneOf(event.type)}>
              <b>{eventName(event.type)}</b>{' '}
              <span class="soft small">
                <Time at={event.at} />
              </span>
              <div class="small">
                <EventText event={event} />
              </div>
            </li>
          ))}
        </ol>
      </section>

      {isEditing && config && (
        <TiersDialog config={config} onSaved={again} onClose={() => setEditing(false)} />
      )}
      {merchant !== undefined && config && (
        <MerchantDialog
          merchant={merchant === 'new' ? undefined : merchant}
          config={config}
          onSaved={again}
          onClose={() => setMerchant(undefined)}
        />
      )}
      {leaving !== undefined && (
        <DeleteDialog id={leaving} onDeleted={again} onClose={() => setLeaving(undefined)} />
      )}
    </div>
  );
}

function DeleteDialog({
  id,
  onDeleted,
  onClose,
}: {
  id: string;
  onDeleted: () => void;
  onClose: () => void;
}) {
  const [problem, setProblem] = useState<string>();
  const remove = async () => {
    try {
      await ask(`/merchants/${encodeURIComponent(id)}`, { method: 'DELETE' });
      notify(`Rules of ${id} deleted.`);
      onDeleted();
      onClose();
    } catch (error) {
      setProblem(sentenceOf(error));
    }
  };
  return (
    <Dialog title={`Delete the rules of ${id}?`} onClose={onClose}>
      <div class="stack">
        <p>New calls of this merchant use the default chain. Live calls are not affected.</p>
        {problem && <Note tone="bad">{problem}</Note>}
        <div class="row end">
          <button type="button" class="btn" onClick={onClose}>
            Cancel
          </button>
          <button type="button" class="btn danger" onClick={remove}>
            Delete
          </button>
        </div>
      </div>
    </Dialog>
  );
}

/** The dialog of `/` on pages without a search: finds a call by its id or a pod by its name. */
import { useState } from 'preact/hooks';
import { collator, stateText } from '../labels';
import { live } from '../live/live';
import { addressOf, go } from '../routes';
import { Dialog } from './dialogs';
import { Icon } from './icons';

const maxFound = 6;

interface Found {
  kind: 'pods' | 'calls';
  id: string;
  about: string;
}

/** Known pods and calls, best match first; the text itself as a call id, because the router also has ended calls. */
function find(text: string): Found[] {
  const words = text.trim().toLowerCase();
  if (words === '') return [];
  const { pods, calls } = live.state;
  const podOfCall = new Map([...calls.values()].map(({ call_sid, pod_name }) => [call_sid, pod_name]));
  for (const { leases, pod_name } of pods.values())
    for (const { call_sid } of leases) podOfCall.set(call_sid, pod_name);
  const known: Found[] = [
    ...[...pods.values()].map((pod): Found => ({ kind: 'pods', id: pod.pod_name, about: stateText(pod) })),
    ...[...podOfCall].map(([id, pod]): Found => ({ kind: 'calls', id, about: `on ${pod}` })),
  ];
  const rank = (id: string) => {
    const at = id.toLowerCase().indexOf(words);
    return id.toLowerCase() === words ? 0 : at === 0 ? 1 : at > 0 ? 2 : 3;
  };
  const found = known
    .filter(({ id }) => rank(id) < 3)
    .sort((a, b) => rank(a.id) - rank(b.id) || collator.compare(a.id, b.id))
    .slice(0, maxFound);
  const id = text.trim();
  const isKnown = (kind: Found['kind']) => found.some((one) => one.kind === kind && one.id === id);
  if (!isKnown('calls') && !isKnown('pods'))
    found.push({ kind: 'calls', id, about: 'look up, including ended calls' });
  if (!isKnown('pods') && pods.size === 0) found.push({ kind: 'pods', id, about: 'look up' });
  return found;
}

export function FindDialog({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState('');
  const found = find(text);
  const open = ({ kind, id }: Found) => {
    onClose();
    go(addressOf(kind, id));
  };
  return (
    <Dialog title="Find a call or a pod" onClose={onClose}>
      <div class="stack find">
        <div class="search">
          <Icon name="search" />
          {/* Not type=search: there Escape clears the field instead of closing the dialog. */}
          <input
            class="field"
            aria-label="Call id or pod name"
            placeholder="Call id or pod name"
            value={text}
            maxLength={256}
            autocomplete="off"
            spellcheck={false}
            onInput={(event) => setText(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === 'Enter' && found[0]) open(found[0]);
            }}
          />
        </div>
        {found.length > 0 && (
          <ul class="found" aria-label="Found">
            {found.map((one) => (
              <li key={`${one.kind} ${one.id}`}>
                <a href={addressOf(one.kind, one.id)} onClick={onClose}>
                  <Icon name={one.kind} />
                  <span>
                    {one.kind === 'pods' ? 'Pod' : 'Call'} <b class="mono">{one.id}</b>
                  </span>
                  <span class="soft small">{one.about}</span>
                </a>
              </li>
            ))}
          </ul>
        )}
      </div>
    </Dialog>
  );
}

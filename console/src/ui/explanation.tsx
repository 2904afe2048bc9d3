/** What an allocate for a merchant would do now, and why: beside a call that got no pod. */
import { useRequest } from '../live/use-request';
import type { Explained } from '../types';
import { Note, PoolChip } from './parts';

const tones = { allocate: 'good', wait: 'warn', refuse: 'bad' } as const;

/** Calls may wait here, as calls of Twilio and Plivo do. */
export function Explanation({ merchant }: { merchant: string | undefined }) {
  const body = JSON.stringify({ merchant_id: merchant || undefined, wait: '0s' });
  const { value, problem, isAbsent } = useRequest<Explained>('/explain', 5000, body);
  if (isAbsent) return null;
  return (
    <section class="stack" aria-label="What would happen now">
      <h3>What would happen now</h3>
      {problem && <Note tone="bad">{problem}</Note>}
      {value && (
        <>
          <Note tone={tones[value.would]}>{sentence(value.summary)}</Note>
          <ol class="line">
            {value.steps.map((step) => (
              <li key={step.pool} data-tone={step.result === 'taken' ? 'good' : undefined}>
                <PoolChip pool={step.pool} /> <StepCounts step={step} />
                <div class="soft small">{sentence(step.reason)}</div>
              </li>
            ))}
          </ol>
          <Standing explained={value} />
          {value.next.length > 0 && (
            <>
              <h3>What frees a place next</h3>
              <ul class="small">
                {value.next.map(({ text }) => (
                  <li key={text}>{sentence(text)}</li>
                ))}
              </ul>
            </>
          )}
        </>
      )}
    </section>
  );
}

function StepCounts({ step }: { step: Explained['steps'][number] }) {
  const least = step.counted ? '' : 'at least ';
  return (
    <span class="small">
      {least}
      {step.free} of {step.pods} {step.pods === 1 ? 'pod' : 'pods'} free
    </span>
  );
}

function Standing({ explained: { max_calls, live_calls, queue } }: { explained: Explained }) {
  if (max_calls === null && !queue) return null;
  return (
    <dl class="pairs">
      {max_calls !== null && (
        <>
          <dt>Limit</dt>
          <dd>
            {live_calls} of {max_calls} calls
          </dd>
        </>
      )}
      {queue && (
        <>
          <dt>Queue</dt>
          <dd>
            {queue.waiting} of {queue.max_waiting} calls wait
            {queue.higher_priority > 0 && `; ${queue.higher_priority} of a higher priority go first`}
          </dd>
        </>
      )}
    </dl>
  );
}

const sentence = (text: string) => `${text.charAt(0).toUpperCase()}${text.slice(1)}`;

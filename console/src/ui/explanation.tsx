/** What an allocate for a merchant would do now, and why: beside a call that got no pod. */
import { ApiError } from '../api';
import { capital, plural } from '../labels';
import { useRequest } from '../live/use-request';
import type { Explained } from '../types';
import { Note, Pairs, PoolChip } from './parts';

const tones = { allocate: 'good', wait: 'warn', refuse: 'bad' } as const;

/** Calls may wait here, as calls of Twilio and Plivo do. */
export function Explanation({ merchant }: { merchant: string | undefined }) {
  const body = { merchant_id: merchant || undefined, wait: '0s' };
  const { value, problem, error } = useRequest<Explained>('/explain', { body });
  // Release 0.1.0 cannot explain.
  if (error instanceof ApiError && error.status === 404) return null;
  return (
    <section class="stack" aria-label="What would happen now">
      <h3>What would happen now</h3>
      {problem && <Note tone="bad">{problem}</Note>}
      {value && (
        <>
          <Note tone={tones[value.would]}>{capital(value.summary)}</Note>
          <ol class="line">
            {value.steps.map((step) => (
              <li key={step.pool} data-tone={step.result === 'taken' ? 'good' : undefined}>
                <PoolChip pool={step.pool} />{' '}
                <span class="small">
                  {step.counted ? '' : 'at least '}
                  {step.free} of {plural(step.pods, 'pod')} free
                </span>
                <div class="soft small">{capital(step.reason)}</div>
              </li>
            ))}
          </ol>
          <Pairs
            of={[
              ['Limit', value.max_calls !== null && `${value.live_calls} of ${value.max_calls} calls`],
              ['Queue', value.queue && queueText(value.queue)],
            ]}
          />
          {value.next.length > 0 && (
            <>
              <h3>What frees a place next</h3>
              <ul class="small">
                {value.next.map(({ text }) => (
                  <li key={text}>{capital(text)}</li>
                ))}
              </ul>
            </>
          )}
        </>
      )}
    </section>
  );
}

function queueText({ waiting, max_waiting, higher_priority: higher }: NonNullable<Explained['queue']>) {
  const first = higher > 0 ? `; ${higher} of a higher priority go first` : '';
  return `${waiting} of ${max_waiting} calls wait${first}`;
}

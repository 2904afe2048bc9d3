/**
 * Times in the viewer's zone, by the router's clock: a laptop whose clock is wrong must not show leases as expired. The
 * `Date` header of every status gives the difference.
 */
import { useEffect, useState } from 'preact/hooks';

let aheadMs = 0;

/** The header has whole seconds: smaller differences are ignored. */
export function learnRouterTime(header: string | null): void {
  const router = header === null ? Number.NaN : Date.parse(header);
  if (Number.isNaN(router)) return;
  const difference = router + 500 - Date.now();
  aheadMs = Math.abs(difference) > 2000 ? difference : 0;
}

export const routerNow = () => Date.now() + aheadMs;

const clockFormat = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' });
const dayFormat = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });

/** HH:MM:SS, preceded by the day if it is not today. */
export function clockText(at: string | number): string {
  const date = new Date(at);
  const time = clockFormat.format(date);
  return date.toDateString() === new Date().toDateString() ? time : `${dayFormat.format(date)} ${time}`;
}

/** 850 -> "0.9 s", 95 s -> "1 min 35 s", 2 h -> "2 h 0 min". */
export function durationText(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

const tickers = new Set<() => void>();
setInterval(() => {
  for (const tick of tickers) tick();
}, 1000);

/** Renders the component every second, with one timer for all. */
export function useSeconds(): number {
  const [, setTick] = useState(0);
  useEffect(() => {
    const tick = () => setTick((n) => n + 1);
    tickers.add(tick);
    return () => void tickers.delete(tick);
  }, []);
  return routerNow();
}

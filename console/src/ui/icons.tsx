/** Line icons on a 24 grid. They always accompany text, so screen readers skip them. */
import icon from '../icon.svg';

const shapes = {
  overview: 'M4 4h7v7H4zM13 4h7v4h-7zM13 11h7v9h-7zM4 14h7v6H4z',
  pods: 'M12 3l8 4.5v9L12 21l-8-4.5v-9zM4.3 7.6 12 12l7.7-4.4M12 12v8.6',
  calls:
    'M6 3h3l1.6 4.4L8.4 9a12 12 0 0 0 6.6 6.6l1.6-2.2L21 15v3a3 3 0 0 1-3 3A15 15 0 0 1 3 6a3 3 0 0 1 3-3z',
  recovery: 'M4 12a8 8 0 1 1 2.5 5.8M4 19v-5h5M12 8v4.2l2.8 1.8',
  records:
    'M4 6c0-1.7 3.6-3 8-3s8 1.3 8 3-3.6 3-8 3-8-1.3-8-3zM4 6v6c0 1.7 3.6 3 8 3s8-1.3 8-3V6M4 12v6c0 1.7 3.6 3 8 3s8-1.3 8-3v-6',
  tiers: 'M12 3l9 4.5-9 4.5-9-4.5zM3.5 12.2 12 16.4l8.5-4.2M3.5 16.6 12 20.8l8.5-4.2',
  events: 'M4 6h.01M4 12h.01M4 18h.01M8 6h12M8 12h12M8 18h8',
  search: 'M11 4a7 7 0 1 1 0 14 7 7 0 0 1 0-14zM16 16l5 5',
  sun: 'M12 8a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6 19 19M5 19l1.4-1.4M17.6 6.4 19 5',
  moon: 'M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z',
  screen: 'M3 5h18v11H3zM9 20h6M12 16v4',
  warning: 'M12 4 2.8 20h18.4zM12 10v4.5M12 17.3v.2',
  check: 'M4 12.5 9.5 18 20 6.5',
  close: 'M6 6l12 12M18 6 6 18',
  up: 'M12 19V5M6 11l6-6 6 6',
  down: 'M12 5v14M6 13l6 6 6-6',
  plus: 'M12 5v14M5 12h14',
  pause: 'M8 5v14M16 5v14',
  play: 'M7 5l12 7-12 7z',
  star: 'M12 4l2.4 5.2 5.6.6-4.2 3.9 1.2 5.7-5-2.9-5 2.9 1.2-5.7L4 9.8l5.6-.6z',
} as const;

export type IconName = keyof typeof shapes;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg
      viewBox="0 0 24 24"
      fill="none"
      stroke="currentColor"
      stroke-width="1.8"
      stroke-linecap="round"
      stroke-linejoin="round"
      aria-hidden="true"
    >
      <path d={shapes[name]} />
    </svg>
  );
}

export function Brand({ note }: { note?: string | undefined }) {
  return (
    <div class="brand">
      <img src={icon} alt="" />
      <span>
        Smart Router
        {note && <small>{note}</small>}
      </span>
    </div>
  );
}

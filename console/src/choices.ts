/** What the viewer chose, kept in this browser: colours and keys, and nothing else. */
type Choice = 'smart-router-theme' | 'smart-router-keys';

export function chosen(choice: Choice): string | null {
  try {
    return localStorage.getItem(choice);
  } catch {
    // A browser that keeps nothing: as if nothing had been chosen.
    return null;
  }
}

/** Undefined: as it is without a choice. */
export function choose(choice: Choice, value: string | undefined): void {
  try {
    if (value === undefined) localStorage.removeItem(choice);
    else localStorage.setItem(choice, value);
  } catch {
    // It holds until the page is closed.
  }
}

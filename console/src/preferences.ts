/** The preferences of the user, stored in the browser. */
type Preference = 'smart-router-theme' | 'smart-router-keys';

export function preference(name: Preference): string | null {
  try {
    return localStorage.getItem(name);
  } catch {
    // No storage: the default.
    return null;
  }
}

/** Undefined restores the default. */
export function setPreference(name: Preference, value: string | undefined): void {
  try {
    if (value === undefined) localStorage.removeItem(name);
    else localStorage.setItem(name, value);
  } catch {
    // No storage: it lasts until the page is closed.
  }
}

/** One line of `smart-router doctor`. */
export interface Check {
  readonly name: string;
  readonly status: 'ok' | 'warn' | 'fail' | 'skip';
  /** What was found; no full stop at the end. */
  readonly message: string;
  /** What to do about it: a sentence. */
  readonly hint?: string;
}

export const ok = (name: string, message: string): Check => ({ name, status: 'ok', message });
export const skip = (name: string, message: string): Check => ({ name, status: 'skip', message });
export const warn = (name: string, message: string, hint: string): Check => ({
  name,
  status: 'warn',
  message,
  hint,
});
export const fail = (name: string, message: string, hint: string): Check => ({
  name,
  status: 'fail',
  message,
  hint,
});

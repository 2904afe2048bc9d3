/** Whether this browser may look. The key goes to the router once and is kept nowhere; the cookie is not readable here. */
import { ApiError, ask } from './api';
import type { Session } from './types';

export async function readSession(): Promise<Session> {
  try {
    return await ask<Session>('/session');
  } catch (error) {
    // A router that knows no sessions: what it refuses will show.
    if (error instanceof ApiError && error.isAbsent)
      return { required: false, signed_in: true, expires_at: null, version: '' };
    throw error;
  }
}

export const signIn = (key: string) => ask('/session', { method: 'POST', body: { key } });
export const signOut = () => ask('/session', { method: 'DELETE' });

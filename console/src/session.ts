/** The session of this browser. The key is sent to the router once and not stored; scripts cannot read the cookie. */
import { ApiError, ask } from './api';
import type { Session } from './types';

export async function readSession(): Promise<Session> {
  try {
    return await ask<Session>('/session');
  } catch (error) {
    // A router without sessions: its rejections will show.
    if (error instanceof ApiError && error.isAbsent)
      return { required: false, signed_in: true, expires_at: null, version: '' };
    throw error;
  }
}

export const signIn = (key: string) => ask('/session', { method: 'POST', body: { key } });
export const signOut = () => ask('/session', { method: 'DELETE' });

/**
 * The URLs that can be fetched: absolute, http or https, no name or password in them, at most 2,048 characters (the
 * sitemap protocol's limit). Written in one way, without a fragment, so that the same page is not stored twice.
 */
export const longestUrl = 2_048;

export type ReadUrl = { readonly url: URL } | { readonly problem: string };

export function readUrl(text: string, base?: URL): ReadUrl {
  // Before it is parsed: a URL of megabytes is not worth the time.
  if (text.length > longestUrl * 4) return { problem: `it is longer than ${longestUrl} characters` };
  let url: URL;
  try {
    url = new URL(text, base);
  } catch {
    return { problem: 'it is not an absolute URL' };
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    return { problem: `${url.protocol}// is neither http nor https` };
  }
  if (url.username !== '' || url.password !== '') return { problem: 'it contains a user name or a password' };
  url.hash = '';
  if (url.href.length > longestUrl) return { problem: `it is longer than ${longestUrl} characters` };
  return { url };
}

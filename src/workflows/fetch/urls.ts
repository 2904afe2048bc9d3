/**
 * Accepts URLs that can be fetched: absolute, http or https, without credentials, at most 2,048 characters (the sitemap
 * protocol's limit). Normalises them without a fragment, so that a page is not stored twice.
 */
export const maxUrlLength = 2_048;

export type ReadUrl = { readonly url: URL } | { readonly problem: string };

export function readUrl(text: string, base?: URL): ReadUrl {
  // Before parsing, which takes long for megabytes.
  if (text.length > maxUrlLength * 4) return { problem: `longer than ${maxUrlLength} characters` };
  let url: URL;
  try {
    url = new URL(text, base);
  } catch {
    return { problem: 'not an absolute URL' };
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    return { problem: `${url.protocol}// is neither http nor https` };
  }
  if (url.username !== '' || url.password !== '') return { problem: 'contains a user name or a password' };
  url.hash = '';
  if (url.href.length > maxUrlLength) return { problem: `longer than ${maxUrlLength} characters` };
  return { url };
}

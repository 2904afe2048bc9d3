/**
 * Who can be reached through a page: e-mail addresses, phone numbers and social profiles, from its links and its text.
 * Promise: never throws, takes time in proportion to the page, and gives each contact once, at most 50 of a kind.
 *
 * What is written as a link is believed; text has to look like it. So text gives phone numbers only in international
 * form (with `+`): without it, dates, prices and order numbers look the same. Of the ways to hide an address only
 * `name [at] example [dot] com` is undone, in brackets of any kind.
 */
import { readUrl } from './fetching/urls.js';
import type { Page } from './page-reader.js';
import { type SocialProfile, socialProfile } from './social-profiles.js';

export interface Contacts {
  /** Lower case. */
  readonly emails: readonly string[];
  /** `+` and digits where the country is known, else digits as they were dialled. */
  readonly phones: readonly string[];
  readonly social: readonly SocialProfile[];
}

const mostOfAKind = 50;

export function findContacts({ text, links }: Pick<Page, 'text' | 'links'>): Contacts {
  const linked = (scheme: string) =>
    links
      .filter((link) => link.slice(0, scheme.length).toLowerCase() === scheme)
      .map((link) => unescaped(link.slice(scheme.length)));
  const emails = [...linked('mailto:').flatMap(emailsOfLink), ...emailsOfText(text)];
  const phones = [...linked('tel:').map(phoneOfLink), ...phonesOfText(text)];
  const social = links.flatMap((link) => {
    // `//example.com/name` takes the scheme of its page.
    const read = readUrl(link.startsWith('//') ? `https:${link}` : link);
    return 'url' in read ? (socialProfile(read.url) ?? []) : [];
  });
  const profiles = new Map(social.map((profile) => [profile.url.toLowerCase(), profile]));
  return {
    emails: few(emails),
    phones: few(phones.filter((phone) => phone !== undefined)),
    social: [...profiles.values()].slice(0, mostOfAKind),
  };
}

function few(values: readonly string[]): string[] {
  return [...new Set(values)].slice(0, mostOfAKind);
}

function unescaped(text: string): string {
  const some = text.slice(0, 2_048);
  try {
    return decodeURIComponent(some);
  } catch {
    return some;
  }
}

// --- E-mail ---

// Every part has a bound, and a match begins only where a run of such characters begins: linear on any text.
const email =
  /(?<![\p{L}\p{N}._%+@-])[a-z0-9_](?:[a-z0-9._%+'-]{0,62}[a-z0-9_])?@(?:[\p{L}\p{N}](?:[\p{L}\p{N}-]{0,61}[\p{L}\p{N}])?\.){1,8}(?:xn--[a-z0-9-]{2,59}|\p{L}{2,24})(?![\p{L}\p{N}@-])/giu;
/** `logo@2x.png` is a picture for fine screens. */
const fileEnding = /\.(?:avif|css|gif|ico|jpe?g|js|json|mp4|png|svg|webp)$/;
const longestEmail = 254;

function emailsOfLink(target: string): string[] {
  const [addresses = ''] = target.split('?');
  return addresses.split(/[,;]/).flatMap((one) => emailsOfText(one.trim()));
}

function emailsOfText(text: string): string[] {
  const plain = text
    .replace(/ ?[[({<] ?(?:at|@) ?[\])}>] ?/gi, '@')
    .replace(/ ?[[({<] ?(?:dot|\.) ?[\])}>] ?/gi, '.');
  return [...plain.matchAll(email)]
    .map(([address]) => address.toLowerCase())
    .filter(
      (address) => address.length <= longestEmail && !address.includes('..') && !fileEnding.test(address),
    );
}

// --- Phone ---

// A country code, then groups of digits, each perhaps in parentheses, with at most three separators between them.
const phone =
  /(?<![\p{L}\p{N}+])\+[1-9]\d{0,14}(?:[ ./\u2010-\u2013()-]{1,3}\d{1,12}){0,9}(?![\p{L}\p{N}])/gu;
const fewestDigits = { linked: 6, international: 8 };
/** ITU-T E.164. */
const mostDigits = 15;

function phonesOfText(text: string): string[] {
  return [...text.matchAll(phone)]
    .map(([number]) => plausible(number))
    .filter((number) => number !== undefined);
}

function phoneOfLink(target: string): string | undefined {
  const [number = ''] = target.split(/[;?]/);
  // `1-800-FLOWERS`: which keys are meant depends on the phone.
  return /\p{L}/u.test(number) ? undefined : plausible(number.trim().replace(/^00/, '+'));
}

function plausible(number: string): string | undefined {
  const international = number.startsWith('+');
  // `+49 (0)30`: the zero is dialled only inside the country.
  const digits = (international ? number.replace('(0)', '') : number).replace(/\D/g, '');
  const fewest = international ? fewestDigits.international : fewestDigits.linked;
  if (digits.length < fewest || digits.length > mostDigits) return undefined;
  return international ? `+${digits}` : digits;
}

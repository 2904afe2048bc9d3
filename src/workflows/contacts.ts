/**
 * Finds e-mail addresses, phone numbers and social profiles in the links and the text of a page, in linear time and in
 * slices (work-slices.ts): every search starts at a character that a contact must have (`@`, `+`), and reads a limited number
 * of characters around it, each at most once per side. Returns each contact once, at most 50 of a kind, from the first
 * 5,000 candidates.
 *
 * Links are trusted; text must match stricter patterns. So text yields phone numbers only in international form (with
 * `+`): otherwise dates, prices and order numbers look the same. Of obfuscated addresses, only
 * `name [at] example [dot] com` is recognised, in brackets of any kind.
 */
import { readUrl } from './fetch/urls.js';
import type { Page } from './page-reader.js';
import { type SocialProfile, socialProfile } from './social-profiles.js';
import type { WorkSlices } from './work-slices.js';

export interface Contacts {
  /** Lower case. */
  readonly emails: readonly string[];
  /** `+` and digits with a country code, else digits only. */
  readonly phones: readonly string[];
  readonly social: readonly SocialProfile[];
}

const maxPerKind = 50;
const maxTried = 5_000;
const maxTargetLength = 2_048;

/** Contacts of one kind. */
class Found<T> {
  readonly #values = new Map<string, T>();
  #tried = 0;

  get isEnough(): boolean {
    return this.#values.size >= maxPerKind || this.#tried >= maxTried;
  }

  get values(): T[] {
    return [...this.#values.values()];
  }

  /** `value` undefined: a candidate that is not a contact. */
  add(key: string, value: T | undefined): void {
    this.#tried += 1;
    if (value !== undefined) this.#values.set(key, value);
  }
}

export async function findContacts(
  { text, links }: Pick<Page, 'text' | 'links'>,
  work: WorkSlices,
): Promise<Contacts> {
  const emails = new Found<string>();
  const phones = new Found<string>();
  const social = new Found<SocialProfile>();
  for (const link of links) {
    work.count(Math.min(link.length, maxTargetLength));
    await work.rest();
    const [, scheme = ''] = /^(mailto|tel):/i.exec(link) ?? [];
    const target = link.slice(scheme.length + 1, scheme.length + 1 + maxTargetLength);
    if (/mailto/i.test(scheme)) {
      const [addresses = ''] = unescaped(target).split('?', 1);
      await addEmails(addresses, emails, work);
    } else if (scheme !== '') {
      const number = phones.isEnough ? undefined : phoneOfLink(unescaped(target));
      if (number) phones.add(number, number);
    } else if (!social.isEnough) {
      const profile = profileOf(link);
      if (profile) social.add(profile.url.toLowerCase(), profile);
    }
  }
  await addEmails(text, emails, work);
  await addPhones(text, phones, work);
  return { emails: emails.values, phones: phones.values, social: social.values };
}

function profileOf(link: string): SocialProfile | undefined {
  // `//example.com/name` has the scheme of its page.
  const read = readUrl(link.startsWith('//') ? `https:${link}` : link);
  return 'url' in read ? socialProfile(read.url) : undefined;
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The code point before `at`. */
function before(text: string, at: number): string {
  const isPair = /[\udc00-\udfff]/.test(text[at - 1] ?? '') && /[\ud800-\udbff]/.test(text[at - 2] ?? '');
  return text.slice(Math.max(0, at - (isPair ? 2 : 1)), at);
}

// --- E-mail ---

const maxNameLength = 64;
const inName = /[a-z0-9._%+'-]/i;
/** A name begins and ends with these. */
const edgeOfName = /[a-z0-9_]/i;
/** A name does not begin after these. */
const continuesName = /[\p{L}\p{N}._%+@-]/u;
const domainRun = /[\p{L}\p{N}.-]{0,255}/uy;
const domain =
  /(?:[\p{L}\p{N}](?:[\p{L}\p{N}-]{0,61}[\p{L}\p{N}])?\.){1,8}(?:xn--[a-z0-9-]{2,59}|\p{L}{2,24})(?![\p{L}\p{N}@-])/iuy;
/** `logo@2x.png` is an image for high-resolution screens. */
const fileEnding = /\.(?:avif|css|gif|ico|jpe?g|js|json|mp4|png|svg|webp)$/;
const maxEmailLength = 254;

async function addEmails(text: string, emails: Found<string>, work: WorkSlices): Promise<void> {
  if (emails.isEnough) return;
  const plain = text
    .replace(/ ?[[({<] ?(?:at|@) ?[\])}>] ?/gi, '@')
    .replace(/ ?[[({<] ?(?:dot|\.) ?[\])}>] ?/gi, '.');
  work.count(text.length);
  for (let at = plain.indexOf('@'); at !== -1 && !emails.isEnough; at = plain.indexOf('@', at + 1)) {
    await work.rest();
    const email = emailAt(plain, at, work);
    emails.add(email ?? '', email);
  }
}

function emailAt(text: string, at: number, work: WorkSlices): string | undefined {
  if (!edgeOfName.test(text[at - 1] ?? '')) return undefined;
  let start: number | undefined;
  let i = at - 1;
  for (; i >= at - maxNameLength && inName.test(text[i] ?? ''); i -= 1) {
    if (edgeOfName.test(text[i] ?? '') && !continuesName.test(before(text, i))) start = i;
  }
  domainRun.lastIndex = at + 1;
  const run = domainRun.exec(text)?.[0].length ?? 0;
  work.count(at - i + run);
  if (start === undefined || run > maxEmailLength) return undefined;
  domain.lastIndex = at + 1;
  const [host] = domain.exec(text) ?? [];
  if (host === undefined) return undefined;
  const email = `${text.slice(start, at)}@${host}`.toLowerCase();
  return email.length > maxEmailLength || email.includes('..') || fileEnding.test(email) ? undefined : email;
}

// --- Phone ---

// A country code, then groups of digits, each perhaps in parentheses, with at most three separators between them.
const phone = /\+[1-9]\d{0,14}(?:[ ./\u2010-\u2013()-]{1,3}\d{1,12}){0,9}(?![\p{L}\p{N}])/uy;
const minDigits = { linked: 6, international: 8 };
/** ITU-T E.164. */
const maxDigits = 15;
/** With all separators. */
const maxNumberLength = 64;

async function addPhones(text: string, phones: Found<string>, work: WorkSlices): Promise<void> {
  for (let at = text.indexOf('+'); at !== -1 && !phones.isEnough; at = text.indexOf('+', at + 1)) {
    await work.rest();
    phone.lastIndex = at;
    const [written] = /[\p{L}\p{N}+]/u.test(before(text, at)) ? [] : (phone.exec(text) ?? []);
    work.count(written?.length ?? 1);
    const number = written === undefined ? undefined : plausible(written);
    phones.add(number ?? '', number);
  }
}

function phoneOfLink(target: string): string | undefined {
  const [number = ''] = target.split(/[;?]/, 1);
  // `1-800-FLOWERS`: the digits depend on the phone.
  if (number.length > maxNumberLength || /\p{L}/u.test(number)) return undefined;
  return plausible(number.trim().replace(/^00/, '+'));
}

function plausible(number: string): string | undefined {
  const international = number.startsWith('+');
  // `+49 (0)30`: the zero is dialled only inside the country.
  const digits = (international ? number.replace('(0)', '') : number).replace(/\D/g, '');
  const min = international ? minDigits.international : minDigits.linked;
  if (digits.length < min || digits.length > maxDigits) return undefined;
  return international ? `+${digits}` : digits;
}

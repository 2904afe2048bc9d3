/**
 * Label and field selectors. An object without the label of a requirement does not match, except for `!=`, `notin` and
 * `!key`.
 */
import { badRequest } from './api-error.js';
import type { Labels } from './objects.js';

export interface Selectable {
  readonly name: string;
  readonly namespace: string;
  readonly labels: Labels;
}

export interface Selector {
  /** True when it selects everything: only then a list contains remainingItemCount. */
  readonly all: boolean;
  matches(object: Selectable): boolean;
}

type Requirement = (object: Selectable) => boolean;

const key = '[A-Za-z0-9](?:[A-Za-z0-9_./-]*[A-Za-z0-9])?';
const setForm = new RegExp(`^(${key})\\s+(in|notin)\\s*\\(([^()]*)\\)$`);
const equalityForm = new RegExp(`^(${key})\\s*(==|=|!=)\\s*([A-Za-z0-9_.-]*)$`);
const existsForm = new RegExp(`^(!?)\\s*(${key})$`);

export function selectorOf(labelSelector: string, fieldSelector: string): Selector {
  const requirements = [
    ...split(labelSelector).map(labelRequirement),
    ...split(fieldSelector).map(fieldRequirement),
  ];
  return {
    all: requirements.length === 0,
    matches: (object) => requirements.every((holds) => holds(object)),
  };
}

/** Splits at commas outside parentheses. */
function split(selector: string): string[] {
  if (selector.trim() === '') return [];
  return selector.split(/,(?![^()]*\))/).map((part) => part.trim());
}

function labelRequirement(text: string): Requirement {
  const set = setForm.exec(text);
  if (set) {
    const [, label = '', operator, list = ''] = set;
    const values = new Set(list.split(',').map((value) => value.trim()));
    return ({ labels }) => {
      const value = labels[label];
      const isListed = value !== undefined && values.has(value);
      return operator === 'in' ? isListed : !isListed;
    };
  }
  const equality = equalityForm.exec(text);
  if (equality) {
    const [, label = '', operator, wanted] = equality;
    return ({ labels }) => (labels[label] === wanted) !== (operator === '!=');
  }
  const exists = existsForm.exec(text);
  if (exists) {
    const [, not, label = ''] = exists;
    return ({ labels }) => (labels[label] !== undefined) !== (not === '!');
  }
  throw badRequest(`unable to parse requirement: "${text}"`);
}

function fieldRequirement(text: string): Requirement {
  const [, field, operator, wanted] = /^([\w.]+)\s*(==|=|!=)\s*(.*)$/.exec(text) ?? [];
  if (field !== 'metadata.name' && field !== 'metadata.namespace') {
    throw badRequest(`field label not supported: ${field ?? text}`);
  }
  const read: (object: Selectable) => string =
    field === 'metadata.name' ? ({ name }) => name : ({ namespace }) => namespace;
  return (object) => (read(object) === wanted) !== (operator === '!=');
}

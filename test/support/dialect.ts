/**
 * Words and phrases that plain technical English does not need. Measured with this list: graphile-worker 2.0 and
 * fastify 0.5 per 1,000 lines; this repository had 32.
 */
const phrases = [
  'whoever|whatever|whichever|whomever|wherever',
  'nobody|somebody|anybody|everybody',
  '(?:is|are|was|were|be|been|being|gets?|got) told|told (?:of|about)|tells? (?:more|of|all)',
  'mend(?:s|ed|ing)?|meanwhile|in the meantime|all the while',
  '(?:bring|brings|brought|come|comes|came|coming|give|gives|gave|given|go|goes|went|take|takes|taken) back',
  '(?:is|are|was|were|be) (?:away|gone)|(?:has|have) gone|gone away',
  '(?:fall|falls|fell|go|goes|went) silent',
  '(?<!there )(?:is|are|was|were) no (?!longer|more|less|such|way|need)[a-z]+|(?:is|are|was|were) none',
  'what (?:is|was|are|were|has|had|comes|goes|belongs|cannot|must|holds|stays|remains|lives|runs|waits|asks|says)',
  'all the same|in vain|for ever|anew|as it were|nothing but|none but',
  '(?:is|are|was|were) left (?:behind|alone)|looks? after|goes on|go on|went on|going on',
  'without a word|last word|has more to do|knows? nothing|known of',
  'there is none|there are none|lent|deeds?|chronicle|narrator|sighting',
  '(?:is|are|was|were) (?:owed|spared|believed|asked for)',
];

export const dialect = new RegExp(`\\b(?:${phrases.join('|')})\\b`, 'gi');

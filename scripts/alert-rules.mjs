// Renders the table of alerts (src/observe/alert-rules.ts) as a Prometheus rules file.

const header = `# Generated from src/observe/alert-rules.ts by \`npm run docs\`: change that file, not this one.
# Tests: promtool test rules smart-router.rules.test.yaml
#
# What to adapt:
#   runbook_url is relative to the repository: put your own address before \`docs/\` (see the README in
#   deploy/prometheus, or prometheusRule.runbookBase of the Helm chart).
#   SmartRouterRouterDown looks at jobs whose name contains smart-router (the chart fills in its own).
#   The seconds in the two SweepStalled alerts fit the default intervals. If CLEANUP_INTERVAL or RECONCILE_INTERVAL is
#   above 100 s, or ZOMBIE_CLEANUP_INTERVAL_MINUTES above 15, raise them to three times the interval.
groups:
`;

/** The files that carry the rules: Helm reads nothing outside the chart. */
export const ruleFiles = [
  'deploy/prometheus/smart-router.rules.yaml',
  'deploy/helm/smart-router/files/smart-router.rules.yaml',
];

/**
 * @param {Readonly<Record<string, readonly import('../src/observe/alert-rules.js').AlertRule[]>>} groups
 * @param {(rule: import('../src/observe/alert-rules.js').AlertRule) => string} runbookOf
 */
export function prometheusRules(groups, runbookOf) {
  const parts = Object.entries(groups).map(
    ([name, rules]) =>
      `  - name: smart-router-${name}\n    rules:\n${rules.map((rule) => ruleText(rule, runbookOf(rule))).join('\n')}`,
  );
  return header + parts.join('\n');
}

/**
 * @param {import('../src/observe/alert-rules.js').AlertRule} rule
 * @param {string} runbook
 */
function ruleText(rule, runbook) {
  const expr = rule.expr.replaceAll('\n', '\n          ');
  return `      - alert: ${rule.alert}
        expr: |-
          ${expr}
${rule.for === undefined ? '' : `        for: ${rule.for}\n`}        labels:
          severity: ${rule.severity}
        annotations:
          summary: ${JSON.stringify(rule.summary)}
          description: ${JSON.stringify(rule.description)}
          runbook_url: ${runbook}
`;
}

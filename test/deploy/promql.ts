/** Reads the metrics, label matchers and groupings of a PromQL expression. */
export interface Asked {
  metric: string;
  /** Label, operator and value of each matcher. */
  matchers: { label: string; operator: string; value: string }[];
}

const keywords = new Set(['and', 'or', 'unless', 'bool', 'offset', 'inf', 'nan']);
const grouping = /\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)/g;
const selector = /([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}/g;
const matcher = /(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"/g;

export function asked(expression: string): { metrics: Asked[]; groupings: string[] } {
  const groupings: string[] = [];
  const metrics: Asked[] = [];
  const rest = expression
    .replace(grouping, (_, labels: string) => {
      groupings.push(...(labels.match(/\w+/g) ?? []));
      return ' ';
    })
    .replace(selector, (_, metric: string, matchers: string) => {
      const parts = [...matchers.matchAll(matcher)].map(([, label = '', operator = '', value = '']) => ({
        label,
        operator,
        value,
      }));
      metrics.push({ metric, matchers: parts });
      return ' ';
    })
    .replace(/"[^"]*"|\[[^\]]*\]|\boffset\s+\w+/g, ' ');
  for (const [, name = ''] of rest.matchAll(/(?<![\w.$])([a-zA-Z_:][\w:]*)\b(?!\s*\()/g))
    if (!keywords.has(name.toLowerCase())) metrics.push({ metric: name, matchers: [] });
  return { metrics, groupings };
}

/** Grafana fills these in before Prometheus sees them. */
export const withoutVariables = (expression: string) =>
  expression.replaceAll('$__rate_interval', '5m').replace(/\$(job|namespace)\b/g, '.*');

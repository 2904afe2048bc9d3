/** The pages that scripts/runbook-pages.mjs builds from docs/, by `document/anchor`. */
declare module 'virtual:runbook' {
  const pages: Record<string, import('../../scripts/runbook-pages.mjs').RunbookPage>;
  export default pages;
}

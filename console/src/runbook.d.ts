/** The pages that scripts/runbook-pages.mjs builds from docs/, by `document/anchor`. */
declare module 'virtual:runbook' {
  export type Inline =
    | string
    | { code: string }
    | { strong: Inline[] }
    | { em: Inline[] }
    | { text: Inline[]; to: string };
  export type Block =
    | { is: 'paragraph' | 'heading'; text: Inline[] }
    | { is: 'code'; text: string }
    | { is: 'list'; ordered: boolean; items: Inline[][] }
    | { is: 'table'; head: Inline[][]; rows: Inline[][][] };
  const pages: Record<string, { title: string; blocks: Block[] }>;
  export default pages;
}

/** One page of the runbook, for an operator on call without a checkout; rendered from data, not from HTML. */

import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Block, Inline } from '../../../scripts/runbook-pages.mjs';
import type { Route } from '../routes';
import { Empty, Note, PlainTable, Scroll } from '../ui/parts';

type Pages = typeof import('virtual:runbook').default;

export function RunbookPage({ route }: { route: Route }) {
  const [pages, setPages] = useState<Pages>();
  const [hasFailed, setFailed] = useState(false);
  useEffect(() => {
    // A script of its own: most visits are without it.
    import('virtual:runbook').then(
      (loaded) => setPages(loaded.default),
      () => setFailed(true),
    );
  }, []);
  const page = route.item === undefined ? undefined : pages?.[route.item];
  if (hasFailed) {
    return (
      <Note tone="bad">
        The runbook could not be loaded. Load the page again, or see docs/ of the release you run.
      </Note>
    );
  }
  if (!pages) return <p class="soft">Reading…</p>;
  if (!page) {
    return (
      <section class="card">
        <Empty icon="events" title="No such page of the runbook">
          This version of the console has none at <code>{route.item}</code>.
        </Empty>
      </section>
    );
  }
  return (
    <article class="card runbook" aria-labelledby="runbook-title">
      <h2 id="runbook-title">{page.title}</h2>
      {page.blocks.map((block, index) => (
        <BlockView block={block} place={index + 1} />
      ))}
      <p class="soft small">
        <code>docs/{route.item?.replace('/', '.md#')}</code>, as of the version of this console
      </p>
    </article>
  );
}

function BlockView({ block, place }: { block: Block; place: number }) {
  switch (block.is) {
    case 'heading':
      return <h3>{words(block.text)}</h3>;
    case 'paragraph':
      return <p>{words(block.text)}</p>;
    case 'code':
      return (
        <pre>
          <code>{block.text}</code>
        </pre>
      );
    case 'list': {
      const items = block.items.map((item) => <li>{words(item)}</li>);
      return block.ordered ? <ol>{items}</ol> : <ul>{items}</ul>;
    }
    case 'table':
      return (
        <Scroll label={`Table, part ${place} of the page`}>
          <PlainTable
            columns={block.head.map((cell, index) => ({
              head: words(cell),
              cell: (row: Inline[][]) => words(row[index] ?? []),
            }))}
            rows={block.rows}
            keyOf={(row) => JSON.stringify(row)}
          />
        </Scroll>
      );
  }
}

function words(of: readonly Inline[]): ComponentChildren {
  return of.map((word) => {
    if (typeof word === 'string') return word;
    if ('code' in word) return <code>{word.code}</code>;
    if ('strong' in word) return <b>{words(word.strong)}</b>;
    if ('em' in word) return <em>{words(word.em)}</em>;
    return (
      <a href={word.to} rel="noreferrer">
        {words(word.text)}
      </a>
    );
  });
}

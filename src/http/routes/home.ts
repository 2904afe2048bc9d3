/** GET /: one page that shows this router live. It holds no data: all it shows comes from guarded endpoints. */
import { createHash } from 'node:crypto';
import type { App, HttpContext } from '../context.js';
import { body, script, style } from './home-page.js';

const hashOf = (text: string) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

const icon =
  'data:image/svg+xml,%3Csvg xmlns=%22http://www.w3.org/2000/svg%22 viewBox=%220 0 8 8%22%3E%3Ccircle cx=%224%22 cy=%224%22 r=%223%22 fill=%22%230a7d55%22/%3E%3C/svg%3E';

const page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Smart Router</title>
<link rel="icon" href="${icon}">
<style>${style}</style>
</head>
<body>${body}<script>${script}</script></body>
</html>
`;

const headers = {
  'content-type': 'text/html; charset=utf-8',
  'cache-control': 'no-cache',
  'content-security-policy': [
    "default-src 'none'",
    `script-src ${hashOf(script)}`,
    `style-src ${hashOf(style)}`,
    "connect-src 'self'",
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
};

export async function homeRoutes(app: App, _context: HttpContext): Promise<void> {
  app.get('/', { config: { access: 'public', quiet: true }, schema: { hide: true } }, async (_, reply) =>
    reply.headers(headers).send(page),
  );
}

/**
 * Lets the routers of this process share their compiled schemas. Fastify compiles about 150 of them for each server, which
 * takes 0.1 s of CPU, and the tests start hundreds of routers. A compiled schema depends on the schema alone.
 */
import { createRequire } from 'node:module';

interface Route {
  schema: unknown;
}
type Compile = (route: Route) => unknown;
/** What both compiler packages export: `(selectorOptions) => (externalSchemas, options) => compile`. */
type Selector = (...options: unknown[]) => (...options: unknown[]) => Compile;

const fastifyRequire = createRequire(createRequire(import.meta.url).resolve('fastify'));

for (const name of ['@fastify/ajv-compiler', '@fastify/fast-json-stringify-compiler']) {
  const selector: Selector = fastifyRequire(name);
  const compiled = new Map<string, unknown>();
  const sharing: Selector = (...selectorOptions) => {
    const build = selector(...selectorOptions);
    return (...options) =>
      (route) => {
        const key = JSON.stringify([options, route.schema]);
        if (!compiled.has(key)) compiled.set(key, build(...options)(route));
        return compiled.get(key);
      };
  };
  const loaded = fastifyRequire.cache[fastifyRequire.resolve(name)];
  if (loaded) loaded.exports = Object.assign(sharing, loaded.exports);
}

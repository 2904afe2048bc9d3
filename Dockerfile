# The router with production packages only, without the embedded engines, which are for laptops.
#   docker build -t registry.example.com/voice/smart-router:0.1.0 .
# Another Node (20 or newer): --build-arg NODE=24-bookworm-slim. For one image exactly, give it with its digest.
ARG NODE=20.20.2-bookworm-slim

FROM node:${NODE} AS build
WORKDIR /app
# Packages change seldom, sources often: two layers. No script of a package runs at install.
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY tsconfig.json tsconfig.build.json ./
COPY scripts/build.mjs scripts/embed.mjs scripts/runbook-pages.mjs ./scripts/
COPY src ./src
COPY console ./console
# The console has the pages that alerts name.
COPY docs ./docs
COPY deploy/postgres ./deploy/postgres
RUN npm run build
# The compiler's own binary is an optional package too, so it is removed only now.
RUN npm prune --omit=dev --omit=optional --ignore-scripts --no-audit --no-fund

FROM node:${NODE}
# npm and yarn are not needed at run time, and would need security updates.
RUN rm -rf /usr/local/lib/node_modules /usr/local/bin/npm /usr/local/bin/npx /usr/local/bin/corepack /opt/yarn-* /usr/local/bin/yarn /usr/local/bin/yarnpkg
WORKDIR /app
ENV NODE_ENV=production \
    HTTP_HOST=0.0.0.0
# Owned by root and read by the user below: a router cannot change its own code.
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
COPY package.json LICENSE ./
COPY bin ./bin
# `kubectl exec deploy/smart-router -- smart-router status` works in every folder.
RUN ln -s /app/bin/smart-router.js /usr/local/bin/smart-router
# A number, so that Kubernetes can see that it is not root.
USER 10001:10001
EXPOSE 8080 9090
# For `docker run`; Kubernetes has its own probes.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
  CMD ["node", "-e", "fetch('http://127.0.0.1:' + (process.env.HTTP_PORT || 8080) + '/api/v1/health').then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["node", "bin/smart-router.js"]
CMD ["serve"]

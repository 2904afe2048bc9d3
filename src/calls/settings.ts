/**
 * The configuration that changes at run time: tiers and merchants. The store holds the truth; every replica
 * keeps a copy and reads it again every `TIER_CONFIG_REFRESH_INTERVAL`.
 *
 * How it fails: a store error or a text that is not a valid configuration leaves the copy as it is, with a
 * warning and a count; calls go on. A text written by hand is applied by the first replica that reads it, and
 * refused (the copy stays) while it cannot be, for instance a shared pool that should become exclusive while
 * pods have several calls. The scripts never look at the copy's idea of a pool's type.
 */

import {
  isName,
  parseTierConfig,
  parseTierConfigJson,
  poolsOf,
  serializeTierConfig,
  showValue,
  type TierConfig,
} from '../config/tiers.js';
import { AppError } from '../errors.js';
import type { Logger } from '../observe/log.js';
import {
  type Chain,
  type MerchantConfig,
  parseMerchantConfig,
  parseStoredMerchant,
  resolveChain,
} from './chain.js';
import { type StoreConnection, unlessWrongType } from './store/connection.js';
import { keysOf } from './store/keys.js';
import { list } from './store/store.js';

export interface SettingsOptions {
  connection: StoreConnection;
  log: Logger;
  /** What this replica was started with: written if the store has none, and compared otherwise. */
  initial: TierConfig;
  /** Whether `TIER_CONFIG` was given: only then is a difference worth a warning. */
  initialGiven: boolean;
  onRefreshError?: () => void;
}

type Warn = (fields: object, message: string) => void;

export class Settings {
  readonly #options: SettingsOptions;
  readonly #keys: ReturnType<typeof keysOf>;
  #tiers: TierConfig;
  #version = 0;
  #appliedText: string | undefined;
  #tierWarnings: readonly string[] = [];
  #differs = false;
  #merchants = new Map<string, MerchantConfig>();
  #merchantPools: ReadonlySet<string> = new Set();
  #labelPools: ReadonlySet<string> = new Set();
  #chains = new Map<string, Chain>();
  /** The warnings of the last read: one that still holds is not logged again at every refresh. */
  #warned: ReadonlySet<string> = new Set();

  constructor(options: SettingsOptions) {
    this.#options = options;
    this.#keys = keysOf(options.connection.keyPrefix);
    this.#tiers = options.initial;
  }

  get tiers(): TierConfig {
    return this.#tiers;
  }

  get tierVersion(): number {
    return this.#version;
  }

  /** `TIER_CONFIG` of this replica says something else than the store. */
  get differsFromEnvironment(): boolean {
    return this.#differs;
  }

  get merchants(): ReadonlyMap<string, MerchantConfig> {
    return this.#merchants;
  }

  chainFor(merchantId: string): Chain {
    // Unknown merchants share one entry, so that made-up ids cannot fill the memory.
    const key = this.#merchants.has(merchantId) ? merchantId : '';
    let chain = this.#chains.get(key);
    if (!chain) {
      chain = this.#resolve(this.#tiers, key, this.#merchantPools);
      this.#chains.set(key, chain);
    }
    return chain;
  }

  /**
   * What a tier configuration would be, were it written now: changes nothing. Of the merchant pools that are there, only
   * those made by a pod's label outlive the configuration they came with.
   */
  preview(input: unknown): {
    problems: string[];
    warnings: string[];
    chains: ({ merchantId: string | null } & Chain)[];
  } {
    const { config, problems, warnings } = parseTierConfig(input, 'tiers');
    if (!config) return { problems, warnings, chains: [] };
    const ids = [null, ...[...this.#merchants.keys()].sort()];
    const chains = ids.map((merchantId) => ({
      merchantId,
      ...this.#resolve(config, merchantId ?? '', this.#labelPools),
    }));
    return { problems, warnings, chains };
  }

  #resolve(tiers: TierConfig, merchantId: string, merchantPools: ReadonlySet<string>): Chain {
    const merchant = this.#merchants.get(merchantId);
    const chain = resolveChain(tiers, merchant);
    // A merchant pool is taken at its word (its first pod may come at any moment), unless there is nothing else.
    if (!chain.steps.every((pool) => pool.startsWith('merchant:'))) return chain;
    return resolveChain(tiers, merchant, merchantPools);
  }

  /** First contact: writes the configuration if the store has none. */
  async start(): Promise<void> {
    await this.writeIfMissing();
    await this.#read();
    if (this.#options.initialGiven && this.#differs) {
      this.#options.log.warn(
        'TIER_CONFIG differs from the configuration in the store, which is the one that counts: change it with `smart-router tiers set`',
      );
    }
  }

  /** One round of the refresh loop. Never throws: what is in memory goes on. */
  async refresh(): Promise<void> {
    try {
      await this.#read();
    } catch (error) {
      this.#options.onRefreshError?.();
      this.#options.log.warn(
        { err: error },
        'could not read the configuration, going on with the one in memory',
      );
    }
  }

  /** For somebody who looks: what the store holds now, or an error. */
  async refreshOrThrow(): Promise<void> {
    await this.#read();
  }

  /** After a flush: the leader writes back what it has in memory. */
  async writeIfMissing(): Promise<void> {
    await this.#write('init', this.#tiers, serializeTierConfig(this.#tiers), undefined, 'start');
  }

  /** Brings the store's pools in line with its configuration text, also when only they were lost. */
  async reapply(): Promise<void> {
    this.#appliedText = undefined;
    await this.#read();
  }

  async replaceTiers(input: unknown, by: string, expectedVersion?: number): Promise<string[]> {
    const { config, problems, warnings } = parseTierConfig(input, 'tiers');
    if (!config) throw wrong('tier', problems);
    await this.#write('replace', config, serializeTierConfig(config), expectedVersion, by);
    await this.#read();
    return warnings;
  }

  async setMerchant(id: string, input: unknown, by: string): Promise<MerchantConfig> {
    const { config, problems } = parseMerchantConfig(input, id);
    if (!config) throw wrong('merchant', problems);
    await this.#options.connection.run('setMerchant', [id, JSON.stringify(config), by], 'set_merchant');
    await this.#read();
    return config;
  }

  async deleteMerchant(id: string, by: string): Promise<void> {
    const [code] = list(await this.#options.connection.run('setMerchant', [id, '', by], 'set_merchant'));
    if (code === 'not_found') throw new AppError('merchant_not_found', `no configuration for merchant ${id}`);
    await this.#read();
  }

  async #read(): Promise<void> {
    const found = new Map<string, () => void>();
    const warn: Warn = (fields, message) =>
      found.set(JSON.stringify([message, fields]), () => this.#options.log.warn(fields, message));
    await this.#readStore(warn);
    const warnings = this.#tierWarnings;
    if (warnings.length > 0) warn({ warnings }, 'the tier configuration in the store has warnings');
    for (const merchant of this.#merchants.keys()) {
      const { skipped } = this.chainFor(merchant);
      if (skipped.length > 0) warn({ merchant, skipped }, 'unknown steps of a merchant chain skipped');
    }
    for (const [warning, log] of found) if (!this.#warned.has(warning)) log();
    this.#warned = new Set(found.keys());
  }

  async #readStore(warn: Warn): Promise<void> {
    const { connection } = this.#options;
    const [text, version, merchants, pools] = await connection.command('settings', (client) =>
      Promise.all([
        this.#orNothing(client.get(this.#keys.tierConfig), null, warn),
        this.#orNothing(client.get(this.#keys.tierVersion), null, warn),
        this.#orNothing<Record<string, string> | undefined>(
          client.hgetall(this.#keys.merchantConfig),
          undefined,
          warn,
        ),
        // The next write of the tiers deletes it and writes it anew.
        this.#orNothing(client.hgetall(this.#keys.pools), {}, warn),
      ]),
    );
    // As tier_version in settings.lua reads what somebody may have written by hand.
    this.#version = /^\d{1,15}$/.test(version ?? '') ? Number(version) : 0;
    // Pools made by a pod's label: only the store knows them.
    const merchantPools = (isMeant: (kind: string) => boolean) =>
      new Set(
        Object.entries(pools).flatMap(([id, kind]) =>
          id.startsWith('merchant:') && isMeant(kind) ? [id.slice('merchant:'.length)] : [],
        ),
      );
    this.#merchantPools = merchantPools((kind) => kind !== 'gone');
    this.#labelPools = merchantPools((kind) => kind === 'label');
    if (merchants) this.#readMerchants(merchants, warn);
    if (text === null || text === this.#appliedText) return;
    const { config, problems, warnings } = parseTierConfigJson(text, this.#keys.tierConfig);
    if (!config) {
      this.#options.onRefreshError?.();
      warn({ problems }, 'the tier configuration in the store is not valid, going on with the one in memory');
      await this.#applyMemory(text, warn);
      return;
    }
    if (!(await this.#apply(config, text, warn))) return;
    this.#appliedText = text;
    this.#tiers = config;
    this.#tierWarnings = warnings;
    this.#chains.clear();
    this.#differs = serializeTierConfig(config) !== serializeTierConfig(this.#options.initial);
  }

  /** A key that somebody made a list or a set by hand: there is nothing in it that could be read. */
  async #orNothing<T>(reply: Promise<T>, nothing: T, warn: Warn): Promise<T> {
    const found = await unlessWrongType<T | typeof wrongType>(reply, wrongType);
    if (found !== wrongType) return found as T;
    this.#options.onRefreshError?.();
    warn({}, 'a key of the configuration is of another type, and counts as not there');
    return nothing;
  }

  /** A text that cannot be applied now (see tier_conflict) is tried again with the next refresh. */
  async #apply(config: TierConfig, text: string, warn: Warn): Promise<boolean> {
    try {
      await this.#write('apply', config, text, undefined, 'refresh');
      return true;
    } catch (error) {
      if (!(error instanceof AppError) || error.status !== 409) throw error;
      this.#options.onRefreshError?.();
      warn({ reason: error.message }, 'the tier configuration in the store cannot be applied yet');
      return false;
    }
  }

  /**
   * A store that knows no pools yet (first contact, or they were lost) gets those in memory, or nobody could be
   * given a pod. The broken text stays where it is, for whoever wrote it. Pools that are there are left alone:
   * they came from the last text that was valid.
   */
  async #applyMemory(text: string, warn: Warn): Promise<void> {
    const { connection } = this.#options;
    const known = await connection.command('settings', (client) => client.exists(this.#keys.pools));
    if (known === 0) await this.#apply(this.#tiers, text, warn);
  }

  #readMerchants(entries: Record<string, string>, warn: Warn): void {
    const merchants = new Map<string, MerchantConfig>();
    for (const [id, json] of Object.entries(entries)) {
      // An empty one would stand for all calls without a merchant.
      if (!isName(id)) {
        warn({ merchant: showValue(id) }, 'a merchant entry has no usable id and is left out');
        continue;
      }
      const { config, problem } = parseStoredMerchant(json);
      if (problem) warn({ merchant: id, problem }, 'a merchant entry is malformed and counts as empty');
      merchants.set(id, config);
    }
    this.#merchants = merchants;
    this.#chains.clear();
  }

  async #write(
    mode: 'init' | 'apply' | 'replace',
    config: TierConfig,
    text: string,
    expectedVersion: number | undefined,
    by: string,
  ): Promise<void> {
    const kinds = poolsOf(config).flatMap(({ id, kind, maxConcurrent }) => [
      id,
      kind === 'shared' ? `shared:${maxConcurrent}` : 'exclusive',
    ]);
    const reply = list(
      await this.#options.connection.run(
        'setTiers',
        [text, mode, expectedVersion ?? '', by, ...kinds],
        'set_tiers',
      ),
    );
    if (reply[0] === 'conflict') {
      throw new AppError('tier_conflict', `${reply[1]} cannot be changed now: ${reply[2]}`);
    }
    if (reply[0] === 'changed') {
      throw new AppError(
        'version_conflict',
        `the tier configuration has changed meanwhile, it is at version ${reply[1]}: read it again`,
      );
    }
    if (reply[0] === 'ok') this.#version = Number(reply[1]);
  }
}

const wrongType = Symbol('wrong type');
const mostInSentence = 5;
const mostListed = 100;

/** A chain of a thousand wrong steps is a thousand problems: the first ones say what is wrong. */
function wrong(what: 'tier' | 'merchant', problems: readonly string[]): AppError {
  const more = problems.length - mostInSentence;
  const said = problems.slice(0, mostInSentence).join('; ') + (more > 0 ? `; and ${more} more` : '');
  return new AppError('invalid_request', `the ${what} configuration is wrong: ${said}`, {
    problems: problems.slice(0, mostListed),
  });
}

/**
 * The configuration that changes at run time: tiers and merchants. The store has the authoritative text; every replica
 * keeps a copy and refreshes it every `TIER_CONFIG_REFRESH_INTERVAL`.
 *
 * Failure modes: after a store error or an invalid text the copy stays in use, with a warning and a count. The first replica
 * that reads a text written by hand applies it, or keeps its copy while the text cannot be applied, for instance while
 * pods of a shared pool that becomes exclusive have several calls. Scripts take the kind of a pool from the store only.
 */

import { isDeepStrictEqual } from 'node:util';
import { parseDuration } from '../config/durations.js';
import { type Hold, holdLimits, parseStoredHold } from '../config/hold.js';
import {
  parseTierConfig,
  parseTierConfigJson,
  poolsOf,
  serializeTierConfig,
  type TierConfig,
} from '../config/tiers.js';
import { AppError } from '../errors.js';
import type { Logger } from '../observe/log.js';
import { type Chain, type MerchantConfig, parseMerchantConfig, resolveChain } from './chain.js';
import { Merchants, readHash, type Warn } from './merchants.js';
import { type StoreConnection, unlessWrongType } from './store/connection.js';
import { keysOf } from './store/keys.js';
import { list } from './store/replies.js';
import type { HoldRules } from './store/store.js';
import type { QueueRules } from './store/wait-store.js';

export interface SettingsOptions {
  connection: StoreConnection;
  log: Logger;
  /** The configuration at start: written if the store has none, and compared otherwise. */
  initial: TierConfig;
  /** Whether `TIER_CONFIG` was set: only then a difference is a warning. */
  initialGiven: boolean;
  onRefreshError?: () => void;
  /** Called after this replica has changed the configuration. */
  onChange?: () => void;
}

interface WriteOptions {
  /** As found in the store; otherwise that of the configuration. */
  text?: string;
  expectedVersion?: number | undefined;
  /** Null: calls may not wait. Undefined: as it is. */
  hold?: Hold | null | undefined;
}

/** Chains that are resolved before other work gets its turn. */
const chainsPerTurn = 500;

export class Settings {
  readonly #options: SettingsOptions;
  readonly #keys: ReturnType<typeof keysOf>;
  #tiers: TierConfig;
  #version = 0;
  #appliedText: string | undefined;
  #mustApply = false;
  #tierWarnings: readonly string[] = [];
  /** Rules for waiting calls: stored under a key of their own. */
  #hold: Hold | undefined;
  readonly #merchants: Merchants;
  #merchantPools: ReadonlySet<string> = new Set();
  #labelPools: ReadonlySet<string> = new Set();
  #chains = new Map<string, Chain>();
  /** The warnings of the last read: a refresh logs only new ones. */
  #warned: ReadonlySet<string> = new Set();
  #reading: Promise<void> = Promise.resolve();
  #nextRead: Promise<void> | undefined;

  constructor(options: SettingsOptions) {
    this.#options = options;
    this.#keys = keysOf(options.connection.keyPrefix);
    this.#tiers = options.initial;
    this.#hold = options.initial.hold;
    this.#merchants = new Merchants(options.connection);
  }

  get tiers(): TierConfig {
    return this.#tiers;
  }

  get tierVersion(): number {
    return this.#version;
  }

  /** `TIER_CONFIG` of this replica differs from the store. */
  get differsFromEnvironment(): boolean {
    const { initial } = this.#options;
    return (
      serializeTierConfig(this.#tiers) !== serializeTierConfig(initial) ||
      !isDeepStrictEqual(this.#hold, initial.hold)
    );
  }

  get merchants(): ReadonlyMap<string, MerchantConfig> {
    return this.#merchants.configs;
  }

  get hold(): Hold | undefined {
    return this.#hold;
  }

  /** By which rules a call of the merchant may wait; undefined: it may not. */
  holdFor(merchantId: string): HoldRules | undefined {
    const merchant = this.merchants.get(merchantId);
    const hold = merchant?.hold ?? this.#hold;
    if (!hold) return undefined;
    return {
      queue: merchant ? merchantId : '',
      priority: merchant?.priority ?? 0,
      weight: merchant?.weight ?? 1,
      maxWaitMs: parseDuration(hold.max_wait) ?? 0,
      maxWaiting: hold.max_waiting,
      maxWaitingAll: this.#hold?.max_waiting ?? holdLimits.maxWaitingDefault,
    };
  }

  /** The rules of a queue of waiting calls, which the store compares with its own. */
  rulesOfQueue(queue: string): QueueRules {
    const { priority = 0, weight = 1 } = this.merchants.get(queue) ?? {};
    return { queue, chain: this.chainFor(queue).steps.join(' '), priority, weight };
  }

  chainFor(merchantId: string): Chain {
    // Unknown merchants share one entry: made-up ids must not fill the memory.
    const key = this.merchants.has(merchantId) ? merchantId : '';
    let chain = this.#chains.get(key);
    if (!chain) {
      chain = this.#resolve(this.#tiers, key, this.#merchantPools);
      this.#chains.set(key, chain);
    }
    return chain;
  }

  /** The chains that a tier configuration would give. Of the existing merchant pools, those of pod labels remain. */
  preview(input: unknown): {
    problems: string[];
    warnings: string[];
    chains: ({ merchantId: string | null } & Chain)[];
  } {
    const { config, problems, warnings } = parseTierConfig(input, 'tiers: ');
    if (!config) return { problems, warnings, chains: [] };
    const ids = [null, ...[...this.merchants.keys()].sort()];
    const chains = ids.map((merchantId) => ({
      merchantId,
      ...this.#resolve(config, merchantId ?? '', this.#labelPools),
    }));
    return { problems, warnings, chains };
  }

  #resolve(tiers: TierConfig, merchantId: string, merchantPools: ReadonlySet<string>): Chain {
    const merchant = this.merchants.get(merchantId);
    const chain = resolveChain(tiers, merchant);
    // A merchant pool may be named before it has pods, unless the chain has nothing else.
    if (!chain.steps.every((pool) => pool.startsWith('merchant:'))) return chain;
    return resolveChain(tiers, merchant, merchantPools);
  }

  /** Writes the configuration if the store has none, then reads it. */
  async start(): Promise<void> {
    await this.writeIfMissing();
    await this.refreshOrThrow();
    if (this.#options.initialGiven && this.differsFromEnvironment) {
      this.#options.log.warn(
        'TIER_CONFIG ignored: the store has another tier configuration; change it with `smart-router tiers set`',
      );
    }
  }

  /** One round of the refresh loop. Never throws: after an error the copy stays in use. */
  async refresh(): Promise<void> {
    try {
      await this.refreshOrThrow();
    } catch (error) {
      this.#options.onRefreshError?.();
      this.#options.log.warn({ err: error }, 'reading the configuration failed; using the copy in memory');
    }
  }

  /** Writes the copy if the store has none, as after a flush. */
  async writeIfMissing(): Promise<void> {
    await this.#write('init', this.#tiers, 'start');
  }

  /** Applies the stored text to the pools again, also if only the pools were lost. */
  async reapply(): Promise<void> {
    this.#mustApply = true;
    await this.refreshOrThrow();
  }

  async replaceTiers(input: unknown, by: string, expectedVersion?: number): Promise<string[]> {
    const { config, problems, warnings } = parseTierConfig(input, 'tiers: ');
    if (!config) throw invalidConfig('tier', problems);
    await this.#write('replace', config, by, { expectedVersion, hold: config.hold ?? null });
    await this.#changed();
    return warnings;
  }

  async setMerchant(id: string, input: unknown, by: string): Promise<MerchantConfig> {
    const { config, problems } = parseMerchantConfig(input, id);
    if (!config) throw invalidConfig('merchant', problems);
    const args = [id, JSON.stringify(config), by, config.max_calls ?? ''];
    await this.#options.connection.run('setMerchant', args, 'set_merchant');
    await this.#changed();
    return config;
  }

  async deleteMerchant(id: string, by: string): Promise<void> {
    const [code] = list(await this.#options.connection.run('setMerchant', [id, '', by, ''], 'set_merchant'));
    if (code === 'not_found') throw new AppError('merchant_not_found', `no configuration for merchant ${id}`);
    await this.#changed();
  }

  async #changed(): Promise<void> {
    await this.refreshOrThrow();
    this.#options.onChange?.();
  }

  /**
   * Reads the store as it is now or later, and rejects if that fails. Reads run one after the other, so that an older one
   * never overwrites a newer one; callers that wait for the next one share it.
   */
  refreshOrThrow(): Promise<void> {
    this.#nextRead ??= this.#reading.then(() => {
      this.#nextRead = undefined;
      const read = this.#refresh();
      this.#reading = read.catch(() => {});
      return read;
    });
    return this.#nextRead;
  }

  async #refresh(): Promise<void> {
    // Here, because a read that is under way would note its text as applied.
    if (this.#mustApply) this.#appliedText = undefined;
    this.#mustApply = false;
    const found = new Map<string, () => void>();
    const warn: Warn = (fields, message) =>
      found.set(JSON.stringify([message, fields]), () => this.#options.log.warn(fields, message));
    await this.#readStore(warn);
    const warnings = this.#tierWarnings;
    if (warnings.length > 0) warn({ warnings }, 'tier configuration in the store has warnings');
    let resolved = 0;
    for (const merchant of this.merchants.keys()) {
      if (!this.#chains.has(merchant)) {
        resolved += 1;
        if (resolved % chainsPerTurn === 0) await this.#options.connection.clock.sleep(0);
      }
      const { skipped } = this.chainFor(merchant);
      if (skipped.length > 0) warn({ merchant, skipped }, 'unknown steps of a merchant chain skipped');
    }
    for (const [warning, log] of found) if (!this.#warned.has(warning)) log();
    this.#warned = new Set(found.keys());
  }

  async #readStore(warn: Warn): Promise<void> {
    const { connection } = this.#options;
    const read = <T>(reply: Promise<T>) => this.#unlessWrongType(reply, warn);
    const {
      tierConfig,
      tierVersion,
      merchantConfig,
      pools: poolsKey,
      tierHold,
      limits: limitsKey,
    } = this.#keys;
    const [text, version, merchants, pools, hold, limits] = await connection.command('settings', (client) =>
      Promise.all([
        read(client.get(tierConfig)),
        read(client.get(tierVersion)),
        read(readHash(client, merchantConfig, (id, entry) => this.#merchants.read(id, entry))),
        // The next write of the tiers rebuilds it.
        read(readHash(client, poolsKey, (_, kind) => kind)),
        read(client.get(tierHold)),
        read(readHash(client, limitsKey, (_, max) => max)),
      ]),
    );
    // An operator may have written any text by hand: see tier_version in lua/lib/settings.lua.
    this.#version = /^\d{1,15}$/.test(version ?? '') ? Number(version) : 0;
    // Merchant pools of pod labels exist in the store only.
    const merchantPools = (accepts: (kind: string) => boolean) =>
      new Set(
        [...(pools ?? [])].flatMap(([id, kind]) =>
          id.startsWith('merchant:') && accepts(kind) ? [id.slice('merchant:'.length)] : [],
        ),
      );
    const known = merchantPools((kind) => kind !== 'gone');
    // A chain depends on the pools that exist.
    if (known.size !== this.#merchantPools.size || [...known].some((id) => !this.#merchantPools.has(id)))
      this.#chains.clear();
    this.#merchantPools = known;
    this.#labelPools = merchantPools((kind) => kind === 'label');
    if (merchants) {
      for (const id of this.#merchants.replace(merchants, warn)) this.#chains.delete(id);
      await this.#merchants.applyLimits(limits ?? new Map());
    }
    // A store without a configuration has lost its data: the copy stays, and is written again.
    if (text != null && hold !== undefined) this.#readHold(hold, warn);
    if (text == null || text === this.#appliedText) return;
    const { config, problems, warnings } = parseTierConfigJson(text, `${this.#keys.tierConfig}: `);
    if (!config) {
      this.#options.onRefreshError?.();
      warn({ problems }, 'invalid tier configuration in the store; using the copy in memory');
      await this.#applyMemory(text, warn);
      return;
    }
    if (!(await this.#apply(config, text, warn))) return;
    this.#appliedText = text;
    this.#tiers = config;
    this.#tierWarnings = warnings;
    this.#chains.clear();
  }

  /** A key of a wrong type, written by hand, counts as missing. */
  async #unlessWrongType<T>(reply: Promise<T>, warn: Warn): Promise<T | undefined> {
    const found = await unlessWrongType<T | undefined>(reply, undefined);
    if (found !== undefined) return found;
    this.#options.onRefreshError?.();
    warn({}, 'configuration key has a wrong type; ignored');
    return undefined;
  }

  /** The next refresh retries a text that cannot be applied now (see tier_conflict). */
  async #apply(config: TierConfig, text: string, warn: Warn): Promise<boolean> {
    try {
      await this.#write('apply', config, 'refresh', { text });
      return true;
    } catch (error) {
      if (!(error instanceof AppError) || error.status !== 409) throw error;
      this.#options.onRefreshError?.();
      warn({ reason: error.message }, 'tier configuration in the store cannot be applied yet; retrying');
      return false;
    }
  }

  /**
   * Writes the pools of the copy to a store without pools, or no call would get a pod. The invalid text stays for its author.
   * Existing pools do not change: they come from the last valid text.
   */
  async #applyMemory(text: string, warn: Warn): Promise<void> {
    const { connection } = this.#options;
    const known = await connection.command('settings', (client) => client.exists(this.#keys.pools));
    if (known === 0) await this.#apply(this.#tiers, text, warn);
  }

  #readHold(text: string | null, warn: Warn): void {
    const { hold, problem } = parseStoredHold(text);
    if (problem) warn({ problem }, 'malformed rules for waiting calls in the store; calls do not wait');
    this.#hold = hold;
  }

  async #write(
    mode: 'init' | 'apply' | 'replace',
    config: TierConfig,
    by: string,
    { text, expectedVersion, hold = this.#hold }: WriteOptions = {},
  ): Promise<void> {
    const kinds = poolsOf(config).flatMap(({ id, kind, maxConcurrent }) => [
      id,
      kind === 'shared' ? `shared:${maxConcurrent}` : 'exclusive',
    ]);
    // A text written by hand leaves the rules for waiting calls as they are.
    const waiting = mode === 'apply' ? [] : ['hold', hold ? JSON.stringify(hold) : ''];
    const written = text ?? serializeTierConfig(config);
    const args = [written, mode, expectedVersion ?? '', by, ...kinds, ...waiting];
    const reply = list(await this.#options.connection.run('setTiers', args, 'set_tiers'));
    if (reply[0] === 'conflict') {
      throw new AppError('tier_conflict', `${reply[1]} cannot be changed now: ${reply[2]}`);
    }
    if (reply[0] === 'changed') {
      throw new AppError(
        'version_conflict',
        `the tier configuration has changed: it is at version ${reply[1]} now; read it again`,
      );
    }
    if (reply[0] === 'ok') this.#version = Number(reply[1]);
  }
}

const maxInMessage = 5;
const maxListed = 100;

/** A chain of a thousand wrong steps has a thousand problems: the error names the first ones. */
function invalidConfig(what: 'tier' | 'merchant', problems: readonly string[]): AppError {
  const more = problems.length - maxInMessage;
  const said = problems.slice(0, maxInMessage).join('; ') + (more > 0 ? `; and ${more} more` : '');
  return new AppError('invalid_request', `invalid ${what} configuration: ${said}`, {
    problems: problems.slice(0, maxListed),
  });
}

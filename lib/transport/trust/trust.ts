import { fingerprintOf, type KeyFingerprint, type PublicKey } from "../../codec/crypto/ssh-key.ts";
import { runAll } from "../../core/async.ts";
import { Failure, messageOf, throwIfCancelled } from "../../core/errors.ts";
import type { WorkerAddress } from "../base/transport.ts";
import { type JumpHost, parseJump } from "../ssh/jump.ts";
import { type Endpoint, type ScanTools, scanBehind, scanHost } from "./host-keys.ts";
import { isSameKey, KnownHosts, knownHostName, sortKeys } from "./known-hosts.ts";

/**
 * What became of the trust in a host: recorded for the first time, as before, refused because its key is another one,
 * replaced because that was asked for, `unreachable` without an answer, `failed` where it could not be asked or has no key
 * of a kind in use, or `not_needed` for a worker that is this machine.
 */
export type TrustOutcome = "trusted" | "unchanged" | "changed" | "replaced" | "unreachable" | "failed" | "not_needed";

/** The outcomes of a host that is not trusted afterwards. */
export const NOT_TRUSTED: ReadonlySet<TrustOutcome> = new Set(["changed", "unreachable", "failed"]);

/** What was found at a host. */
export interface HostTrust {
  /** Its name in known_hosts; null for a worker that is this machine. */
  host: string | null;
  outcome: TrustOutcome;
  /** What it offers now. */
  fingerprints: KeyFingerprint[];
  /** What was known of it before; only where it is something else. */
  previous: KeyFingerprint[];
  error: string | null;
}

/** What was found for a worker. */
export interface WorkerTrust extends HostTrust {
  worker: string;
}

/** All that was found; of jump hosts only what had to be asked. */
export interface TrustResult {
  jump_hosts: HostTrust[];
  workers: WorkerTrust[];
}

/** How trust is given. */
export interface TrustOptions extends ScanTools {
  /** The bucket's `.ssh/known_hosts`. */
  knownHostsFile: string;
  /** The private key, and the user where `ssh_jump` names none, to sign in at jump hosts. */
  identityFile: string;
  jumpUser: string;
  sshOptions: Readonly<Record<string, string>>;
  /** How many hosts are asked at a time. */
  concurrency: number;
  /** Take what a host offers now, whatever was known. */
  force: boolean;
  /** Called once for each jump host and each worker, when its result is in the file. */
  onResult: (name: string, trust: HostTrust) => void;
}

/** As many handshakes as an sshd in its default settings takes from one address without dropping any. */
const BEHIND_ONE_HOP = 8;

/**
 * Records the host keys of workers that are not known yet, jump hosts first (decisions: Workers and transports). A key
 * that is known is never replaced without `force`. All hosts are asked; what goes wrong with one is its result. Throws
 * only `cancelled` and where known_hosts cannot be read or written; what was reported by then stays recorded.
 */
export async function trustWorkers(workers: readonly WorkerAddress[], options: TrustOptions): Promise<TrustResult> {
  const trust = new Trust(await KnownHosts.open(options.knownHostsFile), options);
  const jumpHosts = new Map(
    workers.flatMap((worker) => jumpHostOf(worker, options) ?? []).map((hop) => [nameOf(hop), hop]),
  );
  const hops = await trust.all([...jumpHosts.values()], options.concurrency, (hop) => trust.jumpHost(hop));
  const reached = new Map(hops.map((hop) => [hop.host, hop]));
  const results = new Map<string, WorkerTrust>();
  // The groups one after the other: each has its own bound, and together they keep the whole one.
  for (const [hop, group] of Map.groupBy(workers, (worker) => nameOf(jumpHostOf(worker, options)))) {
    const limit = hop === undefined ? options.concurrency : Math.min(options.concurrency, BEHIND_ONE_HOP);
    const found = await trust.all(group, limit, (worker) => trust.worker(worker, reached.get(hop ?? "")));
    for (const one of found) results.set(one.worker, one);
  }
  return { jump_hosts: hops, workers: workers.flatMap(({ host }) => results.get(host) ?? []) };
}

class Trust {
  readonly #known: KnownHosts;
  readonly #options: TrustOptions;

  constructor(known: KnownHosts, options: TrustOptions) {
    this.#known = known;
    this.#options = options;
  }

  async all<T, R>(items: readonly T[], limit: number, work: (item: T) => Promise<R>): Promise<R[]> {
    const { signal } = this.#options;
    const settled = await runAll(items, limit, work, signal);
    throwIfCancelled(signal);
    return settled.map((one) => {
      if (one.status === "rejected") throw one.reason;
      return one.value;
    });
  }

  async jumpHost(hop: JumpHost): Promise<HostTrust> {
    const found = await this.#host(hop, () => scanHost(hop, this.#options));
    this.#options.onResult(`jump host ${nameOf(hop)}`, found);
    return found;
  }

  async worker(worker: WorkerAddress, jumpHost: HostTrust | undefined): Promise<WorkerTrust> {
    const found = { worker: worker.host, ...(await this.#lookAt(worker, jumpHost)) };
    this.#options.onResult(`worker ${worker.host}`, found);
    return found;
  }

  async #lookAt(worker: WorkerAddress, jumpHost: HostTrust | undefined): Promise<HostTrust> {
    if (worker.connection === "local") return result(null, "not_needed");
    const endpoint = endpointOf(worker);
    const hop = jumpHostOf(worker, this.#options);
    if (!hop) return this.#host(endpoint, () => scanHost(endpoint, this.#options));
    const name = nameOf(hop);
    if (jumpHost === undefined || NOT_TRUSTED.has(jumpHost.outcome))
      return result(nameOf(endpoint), "unreachable", { error: `its jump host ${name} is not trusted` });
    const { identityFile, sshOptions } = this.#options;
    const through = { ...hop, keys: this.#known.keysOf(name), identityFile, sshOptions };
    return this.#host(endpoint, () => scanBehind(endpoint, through, this.#options));
  }

  async #host(endpoint: Endpoint, scan: () => Promise<PublicKey[]>): Promise<HostTrust> {
    let offered: PublicKey[];
    try {
      offered = sortKeys(await scan());
    } catch (error) {
      throwIfCancelled(this.#options.signal);
      if (!(error instanceof Failure)) throw error;
      const outcome = error.code === "unreachable" ? "unreachable" : "failed";
      return result(nameOf(endpoint), outcome, { error: messageOf(error) });
    }
    return this.#judge(nameOf(endpoint), offered);
  }

  /**
   * A known host may offer more kinds of keys than are known; without `force` those are not taken: nothing proves
   * that they are of the same host.
   */
  async #judge(name: string, offered: readonly PublicKey[]): Promise<HostTrust> {
    const { force } = this.#options;
    const known = this.#known.keysOf(name);
    const fingerprints = offered.map(fingerprintOf);
    const previous = known.map(fingerprintOf);
    if (force ? isSameSet(known, offered) : agree(known, offered)) return result(name, "unchanged", { fingerprints });
    if (known.length > 0 && !force)
      return result(name, "changed", { fingerprints, previous, error: "its host key is not the known one" });
    await this.#known.record(name, offered);
    return result(name, known.length > 0 ? "replaced" : "trusted", { fingerprints, previous });
  }
}

/** True when the host showed a key that is known, and none that contradicts one. */
function agree(known: readonly PublicKey[], offered: readonly PublicKey[]): boolean {
  const comparable = offered.filter((key) => known.some(({ type }) => type === key.type));
  return comparable.length > 0 && comparable.every((key) => known.some((one) => isSameKey(one, key)));
}

function isSameSet(known: readonly PublicKey[], offered: readonly PublicKey[]): boolean {
  return known.length === offered.length && known.every((key) => offered.some((one) => isSameKey(one, key)));
}

function result(host: string | null, outcome: TrustOutcome, more: Partial<HostTrust> = {}): HostTrust {
  return { host, outcome, fingerprints: [], previous: [], error: null, ...more };
}

function endpointOf(worker: WorkerAddress): Endpoint {
  return { host: worker.host, port: worker.sshPort ?? 22 };
}

function jumpHostOf({ connection, sshJump }: WorkerAddress, { jumpUser }: TrustOptions): JumpHost | undefined {
  return connection === "ssh" && sshJump !== undefined ? parseJump(sshJump, jumpUser) : undefined;
}

function nameOf(endpoint: Endpoint): string;
function nameOf(endpoint: Endpoint | undefined): string | undefined;
function nameOf(endpoint: Endpoint | undefined): string | undefined {
  return endpoint && knownHostName(endpoint.host, endpoint.port);
}

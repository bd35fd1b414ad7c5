import { fingerprintOf, type KeyFingerprint, type PublicKey } from "../../codec/crypto/ssh-key.ts";
import { mapAll } from "../../core/async.ts";
import { Failure, throwIfCancelled } from "../../core/errors.ts";
import type { WorkerAddress } from "../base/transport.ts";
import { type JumpHost, parseJump, type SshSettings } from "../ssh/openssh.ts";
import {
  type Endpoint,
  isSameKey,
  type KnownHosts,
  knownHostName,
  openKnownHosts,
  type ScanTools,
  scanBehind,
  scanHost,
  sortKeys,
} from "./host-keys.ts";

/**
 * What became of the trust in a host. `trusted`: recorded for the first time; `unchanged`: as before; `changed`:
 * refused, because the host shows another key than the known one; `replaced`: recorded in place of the known key, with
 * `force`; `unreachable`: no answer; `failed`: the host could not be asked, or has no key of a kind in use;
 * `not_needed`: the worker is this machine.
 */
type TrustOutcome = "trusted" | "unchanged" | "changed" | "replaced" | "unreachable" | "failed" | "not_needed";

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

/** All that was found; of jump hosts only what had to be asked. */
export type TrustResult = Awaited<ReturnType<typeof trustWorkers>>;

/** How trust is given. */
export interface TrustOptions extends ScanTools, Pick<SshSettings, "user" | "knownHostsFile"> {
  /** How many hosts are asked at a time. */
  concurrency: number;
  /** Record the keys that a host offers now, even where other keys are known. */
  force: boolean;
  /** Called once for each jump host and each worker, when its result is in the file. */
  onResult: (name: string, trust: HostTrust) => void;
}

/** The run of one trust: what is known, and how hosts are asked. */
interface TrustContext extends TrustOptions {
  known: KnownHosts;
}

/** An sshd in its default settings drops none of so many handshakes from one address. */
const BEHIND_ONE_HOP = 8;

/**
 * Records the host keys of workers that are not known yet, jump hosts first (decisions: Workers and transports). A
 * known key is never replaced without `force`. All hosts are asked; a failure with one host is the result of that host.
 * Throws only `cancelled`, and where known_hosts cannot be read or written; results reported by then stay recorded.
 */
export async function trustWorkers(workers: readonly WorkerAddress[], options: TrustOptions) {
  const { concurrency, signal, onResult } = options;
  const context = { ...options, known: await openKnownHosts(options.knownHostsFile) };
  const hopOf = (worker: WorkerAddress) => {
    const hop = jumpHostOf(worker, options);
    return hop && knownHostName(hop);
  };
  const hops = new Map(workers.flatMap((worker) => jumpHostOf(worker, options) ?? []).map((hop) => [knownHostName(hop), hop]));
  const judgeHop = async (hop: JumpHost) => {
    const found = await trustHost(hop, context, () => scanHost(hop, options));
    onResult(`jump host ${knownHostName(hop)}`, found);
    return found;
  };
  const jumpHosts = await mapAll([...hops.values()], concurrency, judgeHop, signal);
  const judgeWorker = async (worker: WorkerAddress) => {
    const hop = jumpHosts.find(({ host }) => host === hopOf(worker));
    const found = { worker: worker.host, ...(await trustWorker(worker, hop, context)) };
    onResult(`worker ${worker.host}`, found);
    return found;
  };
  const results = new Map<string, HostTrust & { worker: string }>();
  // The groups one after the other: each has its own bound, and together they keep the whole one.
  for (const [hop, group] of Map.groupBy(workers, hopOf)) {
    const limit = hop === undefined ? concurrency : Math.min(concurrency, BEHIND_ONE_HOP);
    for (const one of await mapAll(group, limit, judgeWorker, signal)) results.set(one.worker, one);
  }
  return { jump_hosts: jumpHosts, workers: workers.flatMap(({ host }) => results.get(host) ?? []) };
}

async function trustWorker(worker: WorkerAddress, jumpHost: HostTrust | undefined, context: TrustContext): Promise<HostTrust> {
  if (worker.connection === "local") return hostTrust(null, "not_needed");
  const endpoint = { host: worker.host, port: worker.sshPort ?? 22 };
  const hop = jumpHostOf(worker, context);
  if (!hop) return trustHost(endpoint, context, () => scanHost(endpoint, context));
  const name = knownHostName(hop);
  if (jumpHost === undefined || NOT_TRUSTED.has(jumpHost.outcome))
    return hostTrust(knownHostName(endpoint), "unreachable", { error: `its jump host ${name} is not trusted` });
  return trustHost(endpoint, context, () => scanBehind(endpoint, hop, context.known.keysOf(name), context));
}

/**
 * Compares what `scan` finds with what is known. A known host may offer more kinds of keys than are known; without
 * `force` the other kinds are not recorded: nothing proves that they are of the same host.
 */
async function trustHost(endpoint: Endpoint, context: TrustContext, scan: () => Promise<PublicKey[]>): Promise<HostTrust> {
  const { known, force, signal } = context;
  const name = knownHostName(endpoint);
  let offered: PublicKey[];
  try {
    offered = sortKeys(await scan());
  } catch (error) {
    throwIfCancelled(signal);
    if (!(error instanceof Failure)) throw error;
    return hostTrust(name, error.code === "unreachable" ? "unreachable" : "failed", { error: error.message });
  }
  const keys = known.keysOf(name);
  const fingerprints = offered.map(fingerprintOf);
  const previous = keys.map(fingerprintOf);
  if (force ? isSameSet(keys, offered) : agree(keys, offered)) return hostTrust(name, "unchanged", { fingerprints });
  if (keys.length > 0 && !force)
    return hostTrust(name, "changed", { fingerprints, previous, error: "its host key is not the known one" });
  await known.record(name, offered);
  return hostTrust(name, keys.length > 0 ? "replaced" : "trusted", { fingerprints, previous });
}

/** True when the host showed a key that is known, and none that contradicts one. */
function agree(known: readonly PublicKey[], offered: readonly PublicKey[]): boolean {
  const comparable = offered.filter((key) => known.some(({ type }) => type === key.type));
  return comparable.length > 0 && comparable.every((key) => known.some((one) => isSameKey(one, key)));
}

function isSameSet(known: readonly PublicKey[], offered: readonly PublicKey[]): boolean {
  return known.length === offered.length && known.every((key) => offered.some((one) => isSameKey(one, key)));
}

function hostTrust(host: string | null, outcome: TrustOutcome, more: Partial<HostTrust> = {}): HostTrust {
  return { host, outcome, fingerprints: [], previous: [], error: null, ...more };
}

function jumpHostOf({ connection, sshJump }: WorkerAddress, { user }: TrustOptions): JumpHost | undefined {
  return connection === "ssh" && sshJump !== undefined ? parseJump(sshJump, user) : undefined;
}

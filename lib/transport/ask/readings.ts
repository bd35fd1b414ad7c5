import { leadingNumbers, runScriptOn, ScriptAnswer } from "../base/scripts.ts";
import type { Transport } from "../base/transport.ts";

/** What a worker is. Fields are null where the worker does not tell. */
export type Facts = ReturnType<typeof parseFacts>;

const TOOL_NAMES =
  "bash busybox curl docker find java make node openssl podman python3 rsync setsid sha256sum sudo systemctl tar";

/** The programs that are looked for. */
export const TOOLS: readonly string[] = TOOL_NAMES.split(" ");

/** More disks, interfaces and addresses are not told. */
const MOST_ENTRIES = 256;
const HIGHEST_MHZ = 1_000_000;

/** Reads what `facts.sh` told. Throws `failed` where the answer cannot be understood. */
export function parseFacts(answer: ScriptAnswer) {
  return {
    hostname: answer.text("hostname"),
    os: answer.text("os")?.replace(/^(["'])(.*)\1$/, "$2") ?? null,
    kernel: answer.text("kernel"),
    arch: answer.text("arch"),
    cpu_count: answer.whole("cpu_count", 65_536),
    /** Of one CPU: the highest clock of now, else the highest possible. */
    cpu_mhz: cpuClock(answer),
    /** Rounded up. */
    memory_mb: Math.ceil(answer.whole("memory_kb", 2 ** 40) / 1024),
    /** RFC 3339. */
    boot_time: new Date(answer.whole("boot_time", 2 ** 40) * 1000).toISOString(),
    /** Without the loopback ones; IPv4 first. */
    addresses: [...new Set(factAddresses(answer))].slice(0, MOST_ENTRIES),
    /** The root and what is mounted from devices. */
    disks: factDisks(answer).slice(0, MOST_ENTRIES),
    /** Which of {@link TOOLS} it has. */
    tools: TOOLS.filter((tool) => answer.all("tool").includes(tool)),
  };
}

function cpuClock(answer: ScriptAnswer): number | null {
  const now = answer.all("cpu_mhz").flatMap(leadingNumbers);
  const possible = answer.all("cpu_max_khz").flatMap(leadingNumbers);
  const mhz = now.length > 0 ? Math.max(...now) : Math.max(0, ...possible) / 1000;
  return mhz >= 1 && mhz <= HIGHEST_MHZ ? Math.round(mhz) : null;
}

function factAddresses(answer: ScriptAnswer): string[] {
  const four = answer.all("address").filter((one) => /^\d{1,3}(\.\d{1,3}){3}$/.test(one) && !/^127\./.test(one));
  const six = answer.all("address6").filter((one) => /^[0-9a-f]{32}$/.test(one) && !/^0{31}1$/.test(one));
  const parts = six.map((one) => (one.match(/.{4}/g) as string[]).join(":"));
  return [...four, ...parts.map((one) => new URL(`http://[${one}]`).hostname.slice(1, -1))];
}

function factDisks(answer: ScriptAnswer) {
  const disks = new Map<string, Record<`${"size" | "used" | "available"}_bytes`, number> & { mount: string; device: string }>();
  for (const line of answer.all("disk")) {
    const [, device = "", blocks, used, available, mount = ""] =
      /^(\S{1,253}) +(\d{1,15}) +(\d{1,15}) +(\d{1,15}) +\S+ +(.{1,1024})$/.exec(line) ?? [];
    if (mount === "" || disks.has(device)) continue;
    const [size_bytes, used_bytes, available_bytes] = [Number(blocks) * 1024, Number(used) * 1024, Number(available) * 1024];
    disks.set(device, { mount, device, size_bytes, used_bytes, available_bytes });
  }
  return [...disks.values()];
}

/** /proc/diskstats counts sectors of this size, whatever the device has. */
const SECTOR_BYTES = 512;

/** Reads what `uptime.sh` told. Throws `failed` where the answer cannot be understood. */
export function parseUptime(answer: ScriptAnswer) {
  const [load1, load5, load15] = answer.numbers("load", 3) as [number, number, number];
  const [uptime] = answer.numbers("uptime", 1) as [number];
  return { load1, load5, load15, uptime_s: Math.floor(uptime) };
}

/** Reads what `sysstat.sh` told. Throws `failed` where the answer cannot be understood. */
export function parseSysstat(answer: ScriptAnswer) {
  const [before] = answer.numbers("before_uptime", 1) as [number];
  const [after] = answer.numbers("after_uptime", 1) as [number];
  const seconds = Math.max(0.01, after - before);
  return { cpu_pct: cpuShare(answer), ...memoryUse(answer), disk: diskRates(answer, seconds), net: netRates(answer, seconds) };
}

/** user, nice, system, idle, iowait, irq, softirq, steal: the numbers behind these are part of the first two. */
function cpuShare(answer: ScriptAnswer): number {
  const before = answer.numbers("before_cpu", 8);
  const spent = answer.numbers("after_cpu", 8).map((now, index) => rise(before[index], now));
  const total = spent.reduce((sum, one) => sum + one, 0);
  const idle = (spent[3] as number) + (spent[4] as number);
  return total === 0 ? 0 : tenths((100 * (total - idle)) / total);
}

function memoryUse(answer: ScriptAnswer) {
  const sizes = new Map(answer.all("memory").map((line) => line.split(" ") as [string, string]));
  const bytes = (name: string) => (leadingNumbers(sizes.get(name) ?? "0")[0] ?? 0) * 1024;
  const total = bytes("MemTotal");
  const available = sizes.has("MemAvailable") ? bytes("MemAvailable") : bytes("MemFree");
  return {
    mem_total_bytes: total,
    mem_used_bytes: Math.max(0, total - available),
    mem_available_bytes: available,
    mem_swap_total_bytes: bytes("SwapTotal"),
    mem_swap_used_bytes: Math.max(0, bytes("SwapTotal") - bytes("SwapFree")),
  };
}

function diskRates(answer: ScriptAnswer, seconds: number) {
  const devices = new Set(answer.all("block"));
  return risesOf(answer, "disk", 10)
    .filter(({ name }) => devices.has(name))
    .map(({ name, rises }) => ({
      device: name,
      read_bytes_per_s: Math.round(((rises[2] as number) * SECTOR_BYTES) / seconds),
      write_bytes_per_s: Math.round(((rises[6] as number) * SECTOR_BYTES) / seconds),
      busy_pct: Math.min(100, tenths((rises[9] as number) / seconds / 10)),
    }));
}

function netRates(answer: ScriptAnswer, seconds: number) {
  return risesOf(answer, "net", 9)
    .filter(({ name }) => name !== "lo")
    .map(({ name, rises }) => ({
      interface: name,
      rx_bytes_per_s: Math.round((rises[0] as number) / seconds),
      tx_bytes_per_s: Math.round((rises[8] as number) / seconds),
    }));
}

/**
 * By how much counters rose between two readings, for names that are in both and have been used. Lines with fewer
 * numbers than `count` are passed over.
 */
function risesOf(answer: ScriptAnswer, what: "disk" | "net", count: number): { name: string; rises: number[] }[] {
  const counters = (when: string) => {
    const words = answer.all(`${when}_${what}`).map((line) => /^(\S{1,253}) +(.*)/.exec(line) ?? []);
    const numbers = words.map(([, name = "", rest = ""]) => [name, leadingNumbers(rest)] as const);
    return new Map(numbers.filter(([, of]) => of.length >= count));
  };
  const before = counters("before");
  const used = [...counters("after")].filter(([name, numbers]) => before.has(name) && numbers.some((one) => one > 0));
  return used
    .slice(0, MOST_ENTRIES)
    .map(([name, numbers]) => ({ name, rises: numbers.map((now, index) => rise(before.get(name)?.[index], now)) }));
}

/** A counter that begins anew, or is lost, has not risen. */
function rise(before: number | undefined, now: number): number {
  return Math.max(0, now - (before ?? now));
}

function tenths(value: number): number {
  return Math.round(value * 10) / 10;
}

const PARSERS = { facts: parseFacts, uptime: parseUptime, sysstat: parseSysstat };

/** What a worker can be asked for, and the form of the answer. */
export type Readings = { [K in keyof typeof PARSERS]: ReturnType<(typeof PARSERS)[K]> };

const READING_LIMIT_MS = 30_000;

/**
 * Takes a reading of a worker with one script, which needs no folder of the bucket there. Throws `unreachable`,
 * `cancelled`, `timeout` after 30 s, or `failed` where the answer cannot be understood.
 */
export async function takeReading<K extends keyof Readings>(
  transport: Transport,
  what: K,
  signal: AbortSignal,
): Promise<Readings[K]> {
  const limits = { timeoutMs: READING_LIMIT_MS, signal, isFolderOptional: true };
  const { stdout } = await runScriptOn(transport, what, "Cannot ask the worker", { args: TOOLS, ...limits });
  return PARSERS[what](new ScriptAnswer(stdout)) as Readings[K];
}

import { numbersOf, type ScriptAnswer } from "./answer.ts";

/** What a worker is. Fields are null where it does not tell. */
export interface Facts {
  hostname: string | null;
  os: string | null;
  kernel: string | null;
  arch: string | null;
  cpu_count: number;
  /** Of one CPU: the highest clock of now, else the highest possible. */
  cpu_mhz: number | null;
  /** Rounded up. */
  memory_mb: number;
  /** RFC 3339. */
  boot_time: string;
  /** Without the loopback ones; IPv4 first. */
  addresses: string[];
  /** The root and what is mounted from devices. */
  disks: { mount: string; device: string; size_bytes: number; used_bytes: number; available_bytes: number }[];
  /** Which of {@link TOOLS} it has. */
  tools: string[];
}

/** The programs that are looked for. */
export const TOOLS: readonly string[] = [
  ...["bash", "busybox", "curl", "docker", "find", "java", "make", "node", "openssl", "podman", "python3", "rsync"],
  ...["setsid", "sha256sum", "sudo", "systemctl", "tar"],
];

const MOST = 256;
const HIGHEST_MHZ = 1_000_000;

/** Reads what `facts.sh` told. Throws `failed` where that is no such answer. */
export function parseFacts(answer: ScriptAnswer): Facts {
  return {
    hostname: answer.text("hostname") ?? null,
    os: answer.text("os")?.replace(/^(["'])(.*)\1$/, "$2") ?? null,
    kernel: answer.text("kernel") ?? null,
    arch: answer.text("arch") ?? null,
    cpu_count: answer.whole("cpu_count", 65_536),
    cpu_mhz: mhzOf(answer),
    memory_mb: Math.ceil(answer.whole("memory_kb", 2 ** 40) / 1024),
    boot_time: new Date(answer.whole("boot_time", 2 ** 40) * 1000).toISOString(),
    addresses: [...new Set(addressesOf(answer))].slice(0, MOST),
    disks: disksOf(answer).slice(0, MOST),
    tools: TOOLS.filter((tool) => answer.all("tool").includes(tool)),
  };
}

function mhzOf(answer: ScriptAnswer): number | null {
  const now = answer.all("cpu_mhz").flatMap(numbersOf);
  const possible = answer.all("cpu_max_khz").flatMap(numbersOf);
  const mhz = now.length > 0 ? Math.max(...now) : Math.max(0, ...possible) / 1000;
  return mhz >= 1 && mhz <= HIGHEST_MHZ ? Math.round(mhz) : null;
}

function addressesOf(answer: ScriptAnswer): string[] {
  const four = answer.all("address").filter((one) => /^\d{1,3}(\.\d{1,3}){3}$/.test(one) && !/^127\./.test(one));
  const six = answer.all("address6").filter((one) => /^[0-9a-f]{32}$/.test(one) && !/^0{31}1$/.test(one));
  const parts = six.map((one) => (one.match(/.{4}/g) as string[]).join(":"));
  return [...four, ...parts.map((one) => new URL(`http://[${one}]`).hostname.slice(1, -1))];
}

function disksOf(answer: ScriptAnswer): Facts["disks"] {
  const disks = new Map<string, Facts["disks"][number]>();
  for (const line of answer.all("disk")) {
    const [, device = "", blocks, used, available, mount = ""] =
      /^(\S{1,253}) +(\d{1,15}) +(\d{1,15}) +(\d{1,15}) +\S+ +(.{1,1024})$/.exec(line) ?? [];
    if (mount === "" || disks.has(device)) continue;
    const bytes = (kilobytes: string | undefined) => Number(kilobytes) * 1024;
    const sizes = { size_bytes: bytes(blocks), used_bytes: bytes(used), available_bytes: bytes(available) };
    disks.set(device, { mount, device, ...sizes });
  }
  return [...disks.values()];
}

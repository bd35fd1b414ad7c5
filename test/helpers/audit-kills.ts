import { type ChildProcess, fork } from "node:child_process";
import { readFileSync, truncateSync, writeFileSync } from "node:fs";
import { parseAuditLine } from "../../lib/audit/line.ts";
import { verifyAudit } from "../../lib/audit/verify.ts";
import { auditBelow, chainFiles } from "./audit-log.ts";
import { seeded } from "./random.ts";
import { until } from "./temporary.ts";

const PROGRAM = new URL("../fixtures/audit-writer.ts", import.meta.url);

/** What the kills of writers have found. */
interface AuditKills {
  killed: number;
  confirmed: number;
  /** Lines at the end that say that a write before them was cut off. */
  torn: number;
}

/**
 * Lets two processes write one audit and kills them with SIGKILL, one after the other. After some kills of both, the file
 * gets what a write that was cut off leaves. In the end the chain must hold, with every line that was confirmed.
 */
export async function killAuditWriters(root: string, kills: number, seed: number): Promise<AuditKills> {
  const random = seeded(seed);
  const publicKey = (await auditBelow(root).log.key()).publicKey;
  const confirmed = new Map<number, string>();
  const troubles: unknown[] = [];
  const writers = new Set<ChildProcess>();
  const start = () => {
    const writer = fork(PROGRAM, [root], { stdio: "ignore" });
    writers.add(writer);
    writer.on("message", (told: { n: number; hash: string; trouble?: unknown }) => {
      if (told.trouble) troubles.push(told.trouble);
      else if (confirmed.has(told.n)) troubles.push(`line ${told.n} was confirmed twice`);
      else confirmed.set(told.n, told.hash);
    });
    writer.once("exit", () => writers.delete(writer));
  };
  let killed = 0;
  try {
    while (killed < kills && troubles.length === 0) {
      while (writers.size < 2) start();
      const before = confirmed.size;
      await until("lines of a writer", () => confirmed.size > before + random() * 40 || troubles.length > 0);
      const victims = random() < 0.5 ? [...writers] : [...writers].slice(0, 1);
      for (const victim of victims) victim.kill("SIGKILL");
      await until("the end of the writers", () => victims.every((victim) => !writers.has(victim)));
      killed += victims.length;
      if (victims.length === 2) await cutOff(root, random);
    }
  } finally {
    for (const writer of writers) writer.kill("SIGKILL");
    await until("the end of all writers", () => writers.size === 0);
  }
  if (troubles.length > 0) throw new Error(`seed ${seed}: ${JSON.stringify(troubles)}`);
  return { killed, confirmed: confirmed.size, torn: await requireAll(root, publicKey, confirmed, seed) };
}

/** Puts the beginning of a line, or zeros, behind the last line: what a write leaves that a power loss has cut. */
async function cutOff(root: string, random: () => number): Promise<void> {
  const file = (await chainFiles(root)).at(-1) as string;
  const bytes = readFileSync(file);
  const last = bytes.subarray(bytes.lastIndexOf("\n", bytes.length - 2) + 1, -1);
  const tail = random() < 0.7 ? last.subarray(0, Math.floor(random() * last.length)) : Buffer.alloc(Math.floor(random() * 9_000));
  if (random() < 0.5) writeFileSync(file, tail, { flag: "a" });
  else if (bytes.at(-1) !== 0x0a) truncateSync(file, bytes.lastIndexOf("\n") + 1);
}

async function requireAll(
  root: string,
  publicKey: string,
  confirmed: ReadonlyMap<number, string>,
  seed: number,
): Promise<number> {
  const { log } = auditBelow(root);
  await log.append({ what: "alive" });
  await log.close();
  const files = await chainFiles(root);
  const { finding } = await verifyAudit(files, { publicKey });
  if (finding) throw new Error(`seed ${seed}: ${JSON.stringify(finding)}`);
  const lines = files.flatMap((file) => readFileSync(file, "utf8").trimEnd().split("\n"));
  const read = new Map(lines.map((text) => parseAuditLine(Buffer.from(text))).map((line) => [line?.n, line]));
  for (const [n, hash] of confirmed)
    if (read.get(n)?.hash !== hash) throw new Error(`seed ${seed}: line ${n} was confirmed, and is not there`);
  return [...read.values()].filter((line) => line?.torn).length;
}

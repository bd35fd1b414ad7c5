import { createHash } from "node:crypto";
import { readdirSync, readlinkSync } from "node:fs";
import { chmod, lstat, mkdir, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import type { TestContext } from "node:test";
import { signalProcess } from "../../lib/core/process.ts";
import { type CommandOutcome, Launcher } from "../../lib/core/spawn.ts";
import { jobsJson, RUNNER_PATH, runnerText } from "../../lib/transport/ask/runner.ts";
import { localTransport } from "../../lib/transport/base/local.ts";
import type { ScriptOptions, Transport } from "../../lib/transport/base/transport.ts";
import type { SyncFile, SyncTree } from "../../lib/transport/files/sync.ts";
import { temporaryFolder } from "./temporary.ts";

/** Where the programs that run on a worker come from. */
export type Userland = "system" | "busybox";
export const USERLANDS: readonly Userland[] = ["system", "busybox"];

/** A worker of its own in a temporary folder, removed at the end of the test with all that still runs for it. */
export interface TestWorker {
  transport: Transport;
  launcher: Launcher;
  /** The bucket's folder on the worker. */
  folder: string;
}

const BUCKET_ID = "0190a5e8-0000-7000-8000-000000000001";

/** Makes a worker that is reached locally; with `busybox`, its scripts find nothing but busybox and make. */
export async function temporaryWorker(t: TestContext, userland: Userland = "system"): Promise<TestWorker> {
  t.after(async () => {
    await launcher.endAll(0);
    for (const pid of processesIn(root)) signalProcess(pid, "SIGKILL");
  });
  const root = temporaryFolder(t);
  const launcher = new Launcher({ PATH: userland === "system" ? process.env.PATH : await busyboxPath(root) });
  const transport = localTransport({ host: "127.0.0.1", connection: "local", root }, BUCKET_ID, launcher);
  await mkdir(transport.folder, { recursive: true });
  return { transport, launcher, folder: transport.folder };
}

/** The processes that work below a folder. */
export function processesIn(folder: string): number[] {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.map(Number).filter((pid) => {
    try {
      return readlinkSync(`/proc/${pid}/cwd`).startsWith(folder);
    } catch {
      return false;
    }
  });
}

/** A folder for one test as the only place to find programs: those of busybox, and make. */
export async function busyboxFolder(t: TestContext): Promise<string> {
  return await busyboxPath(temporaryFolder(t));
}

/** A folder for one test as the only place to find programs: these of the system. */
export async function programsFolder(t: TestContext, ...names: string[]): Promise<string> {
  const bin = temporaryFolder(t);
  const search = (process.env.PATH ?? "").split(path.delimiter);
  for (const name of names) await symlink(await found(name, search), path.join(bin, name));
  return bin;
}

async function busyboxPath(root: string): Promise<string> {
  const bin = path.join(root, "busybox-bin");
  await mkdir(bin);
  const search = (process.env.PATH ?? "").split(path.delimiter);
  const busybox = await found("busybox", search);
  for (const [name, target] of [
    ["make", await found("make", search)],
    ...APPLETS.map((applet) => [applet, busybox] as const),
  ] as const)
    await symlink(target, path.join(bin, name));
  return bin;
}

const APPLETS =
  "sh cat chmod cut date df dirname echo find grep head id ln ls mkdir mkfifo mv nproc readlink rm rmdir sed setsid sha256sum sleep sort stat tail tar tee tr uname wc xargs".split(
    " ",
  );

async function found(program: string, search: string[]): Promise<string> {
  for (const folder of search) {
    const file = path.join(folder, program);
    if (await lstat(file).catch(() => undefined)) return file;
  }
  throw new Error(`${program} is not installed: apt-get install ${program}`);
}

/** A file to sync, its content in memory. */
export function syncFile(name: string, content: string | Buffer, mode = 0o644): SyncFile {
  const bytes = Buffer.from(content as string);
  return {
    path: name,
    mode,
    sha256: createHash("sha256").update(bytes).digest("hex"),
    size: bytes.length,
    async *open() {
      yield bytes;
    },
  };
}

/** Puts a job with this Makefile on a worker, as a deploy leaves it. */
export async function installJob(worker: TestWorker, job: string, makefile: string): Promise<string> {
  const folder = path.join(worker.folder, "jobs", job);
  await mkdir(folder, { recursive: true });
  await writeFile(path.join(folder, "Makefile"), makefile);
  await mkdir(path.join(worker.folder, "bin"), { recursive: true });
  await writeFile(path.join(worker.folder, "jobs.json"), jobsJson([{ job, disabled: false }]));
  await writeFile(path.join(worker.folder, RUNNER_PATH), runnerText());
  await chmod(path.join(worker.folder, RUNNER_PATH), 0o755);
  return folder;
}

/** All files below a folder with their content, and empty folders as `name/`; `skip` names what is left out at the top. */
export async function contentOf(folder: string, skip: readonly string[] = []): Promise<Record<string, string>> {
  const content: Record<string, string> = {};
  for (const entry of await readdir(folder, { withFileTypes: true, recursive: true })) {
    const file = path.join(entry.parentPath, entry.name);
    const name = path.relative(folder, file);
    if (skip.includes(name.split("/")[0] as string)) continue;
    if (entry.isFile()) content[name] = await readFile(file, "utf8");
    else if (entry.isDirectory() && (await readdir(file)).length === 0) content[`${name}/`] = "";
  }
  return content;
}

/**
 * The tree that number `number` of a series of deploys puts on a worker: most files differ from one to the next, and
 * so do their names unless `names` stays the same.
 */
export function numberedTree(number: number, names = number): SyncTree {
  const files = [
    syncFile("Makefile", "status:\n\t@cat number\n"),
    syncFile("number", `${number}\n`),
    syncFile(names % 2 === 0 ? "run/even" : "run", `${number}`, 0o755),
    syncFile("large", `${number}`.repeat(300_000)),
    ...Array.from({ length: 8 }, (_, at) => syncFile(`conf/${names + at}/a.conf`, `${number} ${at}`)),
  ];
  return { name: "web", folder: "jobs/web", files };
}

/** A worker without any machine: it answers every script as told, and what it was asked is noted. */
export function answeringWorker(outcome: Partial<CommandOutcome> = {}) {
  const asked: ScriptOptions[] = [];
  const transport: Transport = {
    worker: { host: "w1", connection: "ssh", root: "/srv" },
    folder: "/srv/b",
    async script(_text, options = {}) {
      asked.push(options);
      const answer = { reason: "exit", exitCode: 0, signal: null, stdout: "", stderr: "", durationMs: 1, ...outcome } as const;
      for (const stream of ["stdout", "stderr"] as const)
        for (const line of answer[stream].split("\n").slice(0, -1)) options.onLine?.(line, stream);
      return answer;
    },
    async close() {},
  };
  return { transport, asked };
}

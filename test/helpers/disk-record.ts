// Records the order in which this process flushes, renames, links and removes, and whether a file is on the disk when
// it gets its name. A test cannot cut the power: this record shows what a power loss would leave.
import childProcess from "node:child_process";
import fs, { lstatSync, readdirSync, readlinkSync } from "node:fs";
import fsp, { type FileHandle } from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import path from "node:path";

/** One step, its paths relative to the folder that is looked at. */
export interface DiskStep {
  op: "flush" | "rename" | "link" | "remove";
  /** What is flushed or removed, or the old name. */
  path: string;
  /** The new name. */
  to?: string;
  /** Of the files and folders that have a new name now, or lie below it: those changed since their last flush. */
  unflushed?: string[];
  /** The whole file system is flushed. */
  all?: true;
}

/** Does the work and answers its steps below `root`, in their order. */
export async function diskSteps(root: string, work: () => Promise<unknown>): Promise<DiskStep[]> {
  const record = new Record(root);
  const handles = await handlePrototype();
  const undo = [
    replace(
      handles,
      "sync",
      (sync) =>
        async function (this: FileHandle) {
          await sync.call(this);
          record.flushed(this.fd);
        },
    ),
    replace(
      fs,
      "fsync",
      (fsync) => (fd: number, done: (error: Error | null) => void) =>
        fsync(fd, (error: Error | null) => {
          if (!error) record.flushed(fd);
          done(error);
        }),
    ),
    replace(fs, "fsyncSync", (fsyncSync) => (fd: number) => {
      fsyncSync(fd);
      record.flushed(fd);
    }),
    replace(fs, "renameSync", (renameSync) => (from: string, to: string) => {
      record.named("rename", from, to);
      renameSync(from, to);
    }),
    ...(["rename", "link"] as const).map((op) =>
      replace(fsp, op, (real) => async (from: string, to: string) => {
        record.named(op, from, to);
        await real(from, to);
      }),
    ),
    replace(fsp, "rm", (rm) => async (target: string, options: object) => {
      record.removed(target);
      await rm(target, options);
    }),
    replace(childProcess, "spawn", (spawn) => (file: string, args: string[], options: object) => {
      const child = spawn(file, args, options);
      if (file === "sync") child.once("exit", (code: number | null) => code === 0 && record.allFlushed(args[1] as string));
      return child;
    }),
  ];
  syncBuiltinESMExports();
  try {
    await work();
  } finally {
    for (const one of undo) one();
    syncBuiltinESMExports();
  }
  return record.steps;
}

/** The steps as lines of text. */
export function linesOf(steps: readonly DiskStep[]): string[] {
  const plain = (name: string) => name.replace(/\.[0-9a-f]{12}\.tmp$/, ".tmp");
  return steps.map(({ op, path, to, unflushed = [] }) =>
    [op, plain(path), ...(to ? [`-> ${plain(to)}`] : []), ...unflushed.map((name) => `unflushed ${name}`)].join(" "),
  );
}

class Record {
  readonly steps: DiskStep[] = [];
  readonly #root: string;
  /** By inode: the time of the last change when the file was flushed. */
  readonly #flushed = new Map<bigint, bigint>();

  constructor(root: string) {
    this.#root = root;
  }

  flushed(fd: number): void {
    const file = readlinkSync(`/proc/self/fd/${fd}`);
    const { ino, mtimeNs } = lstatSync(file, { bigint: true });
    this.#flushed.set(ino, mtimeNs);
    this.#add({ op: "flush", path: file });
  }

  /** The whole file system is flushed: what is asked for here, and all else. */
  allFlushed(folder: string): void {
    this.#add({ op: "flush", path: folder, all: true });
    for (const file of allBelow(this.#root)) {
      const { ino, mtimeNs } = lstatSync(file, { bigint: true });
      this.#flushed.set(ino, mtimeNs);
    }
  }

  named(op: "rename" | "link", from: string, to: string): void {
    const unflushed = allBelow(from).filter((file) => !this.#isFlushed(file));
    this.#add({ op, path: from, to, unflushed: unflushed.map((file) => path.relative(this.#root, file)) });
  }

  removed(target: string): void {
    if (lstatSync(target, { throwIfNoEntry: false })) this.#add({ op: "remove", path: target });
  }

  #isFlushed(file: string): boolean {
    const { ino, mtimeNs } = lstatSync(file, { bigint: true });
    return this.#flushed.get(ino) === mtimeNs;
  }

  #add({ op, path: name, to, unflushed = [], all }: DiskStep): void {
    const relative = (file: string) => path.relative(this.#root, file) || ".";
    this.steps.push({
      op,
      path: relative(name),
      ...(to !== undefined && { to: relative(to) }),
      ...(unflushed.length > 0 && { unflushed }),
      ...(all && { all }),
    });
  }
}

function allBelow(file: string): string[] {
  const found = lstatSync(file, { throwIfNoEntry: false });
  if (!found) return [];
  if (!found.isDirectory()) return [file];
  return [file, ...readdirSync(file, { recursive: true }).map((name) => path.join(file, String(name)))];
}

async function handlePrototype(): Promise<FileHandle> {
  await using handle = await fsp.open("/proc/self/stat");
  return Object.getPrototypeOf(handle) as FileHandle;
}

// biome-ignore lint/suspicious/noExplicitAny: any function of node's takes the place of another.
type Any = any;

function replace(target: object, name: string, make: (real: Any) => Any): () => void {
  const owner = target as { [name: string]: Any };
  const real = owner[name];
  owner[name] = make(real);
  return () => {
    owner[name] = real;
  };
}

// Finds out which code each test file reaches, and how long the file takes: by one run of each with coverage.
import { type ChildProcess, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  cpSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { folderOf, type Mutant } from "./mutant-draw.ts";
import { SEED } from "./random.ts";

/** A test file run without a mutant: the code of lib that it reaches, by file, as pairs of positions in the text. */
export interface Reach {
  file: string;
  digest: string;
  passed: boolean;
  ms: number;
  code: Record<string, { digest: string; ranges: number[] }>;
}

/** How a test file ended: `failed` at its first failing test. */
export type Verdict = "passed" | "failed" | "timed out";

/** Longer than any test file takes. */
const LONGEST_MS = 300_000;
/** Test files that read sources rather than run them, test this machinery, or take minutes. */
const NOT_TESTS = /^test\/(?:architecture|scripts\/mutants|slow\/.*)\.test\.ts$/;
/** Scripts of hooks run a copy of this file of lib. */
const STAGED = /^file:.*\/_hooks\/(?=ops\.ts$)/;

/** A copy of the project where tests run, with a folder for what they write. */
export class Copy {
  readonly tree: string;
  readonly #folder: string;
  #temporary = "";

  constructor(folder: string, root: string) {
    this.#folder = folder;
    this.tree = path.join(folder, "ops");
    mkdirSync(this.tree, { recursive: true });
    // Some tests work as another user, who must get through this folder.
    chmodSync(path.dirname(folder), 0o711);
    for (const name of readdirSync(root))
      if (name !== "node_modules" && name !== ".git")
        cpSync(path.join(root, name), path.join(this.tree, name), { recursive: true, verbatimSymlinks: true });
    symlinkSync(path.join(root, "node_modules"), path.join(this.tree, "node_modules"));
  }

  /** Runs a test file until it ends, fails or is out of time; then ends whatever it started. */
  async run(test: string, limitMs: number, env: Record<string, string> = {}): Promise<Verdict> {
    // A short name: the path of a socket has a limit.
    this.#temporary = mkdtempSync(path.join(tmpdir(), "ops-m-"));
    chmodSync(this.#temporary, 0o711);
    // Without the variable that marks a process of the test runner; the others are those of scripts/test.ts.
    const { NODE_TEST_CONTEXT: _, XDG_CACHE_HOME: __, XDG_CONFIG_HOME: ___, ...ours } = process.env;
    const compiled = { NODE_COMPILE_CACHE: path.join(this.#folder, "compiled") };
    const own = { HOME: this.#temporary, TMPDIR: this.#temporary, OPS_TEST_SEED: String(SEED), ...compiled };
    const child = spawn(process.execPath, ["--test-reporter=tap", test], {
      cwd: this.tree,
      env: { ...ours, ...own, ...env },
      stdio: ["ignore", "pipe", "ignore"],
      detached: true,
    });
    try {
      return await verdictOf(child, limitMs);
    } finally {
      this.#clear();
    }
  }

  /** Ends the processes that work in this copy or were started there, and removes what they wrote. */
  #clear(): void {
    for (let pids = this.#processes(); pids.length > 0; pids = this.#processes()) for (const pid of pids) kill(pid);
    rmSync(this.#temporary, { recursive: true, force: true, maxRetries: 5 });
  }

  #processes(): number[] {
    const places = [`${this.#folder}/`, this.#temporary];
    const facts = [
      (pid: string) => readlinkSync(`/proc/${pid}/cwd`),
      (pid: string) => readFileSync(`/proc/${pid}/cmdline`, "latin1"),
      (pid: string) => readFileSync(`/proc/${pid}/environ`, "latin1"),
    ];
    return readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
      .filter((pid) => facts.some((fact) => attempt(() => places.some((place) => fact(pid).includes(place)))))
      .map(Number);
  }
}

function attempt(look: () => boolean): boolean {
  try {
    return look();
  } catch {
    return false;
  }
}

function kill(pid: number): void {
  attempt(() => process.kill(pid, "SIGKILL"));
}

async function verdictOf(child: ChildProcess, limitMs: number): Promise<Verdict> {
  return await new Promise((resolve, reject) => {
    const timer = setTimeout(() => resolve("timed out"), limitMs);
    child.on("error", reject);
    let rest = "";
    child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      if (lines.some((line) => /^\s*not ok /.test(line))) resolve("failed");
    });
    child.on("exit", (code) => {
      clearTimeout(timer);
      resolve(code === 0 ? "passed" : "failed");
    });
  });
}

/** Answers what every test file reaches; only those that changed since `cache` was written are run. */
export async function reaches(copies: readonly Copy[], cache: string, tell = console.log): Promise<Reach[]> {
  mkdirSync(cache, { recursive: true });
  const tree = copies[0]?.tree ?? "";
  const tests = globSync("test/**/*.test.ts", { cwd: tree }).filter((file) => !NOT_TESTS.test(file));
  const found: Reach[] = [];
  const left = [...tests].sort();
  const work = async (copy: Copy) => {
    for (let file = left.pop(); file !== undefined; file = left.pop()) {
      const kept = path.join(cache, `${file.replaceAll("/", "-")}.json`);
      const digest = digestOf(path.join(tree, file));
      const known = read(kept);
      const reach = known?.passed && known.digest === digest ? known : await reachOf(copy, file, digest);
      if (reach !== known)
        tell(`${file}: ${reach.passed ? "" : "fails as it is, "}${Math.round(reach.ms)} ms, ${left.length} left`);
      writeFileSync(kept, JSON.stringify(reach));
      found.push(reach);
    }
  };
  await Promise.all(copies.map(work));
  return found;
}

function read(file: string): Reach | undefined {
  try {
    return JSON.parse(readFileSync(file, "utf8"));
  } catch {
    return undefined;
  }
}

async function reachOf(copy: Copy, file: string, digest: string): Promise<Reach> {
  const folder = path.join(copy.tree, "coverage");
  const started = performance.now();
  const verdict = await copy.run(file, LONGEST_MS, { NODE_V8_COVERAGE: folder, NODE_DISABLE_COMPILE_CACHE: "1" });
  const ms = performance.now() - started;
  const code = codeIn(folder, copy.tree);
  rmSync(folder, { recursive: true, force: true });
  return { file, digest, passed: verdict === "passed", ms, code };
}

interface Coverage {
  result: { url: string; functions: { ranges: { startOffset: number; endOffset: number; count: number }[] }[] }[];
}

/** The code that was run by the processes whose coverage lies in a folder. */
function codeIn(folder: string, tree: string): Reach["code"] {
  const lib = `${pathToFileURL(path.join(tree, "lib")).href}/`;
  const marks = new Map<string, Uint8Array>();
  for (const name of globSync("*.json", { cwd: folder })) {
    const text = readFileSync(path.join(folder, name), "utf8");
    const coverage: Coverage = text.endsWith("}") ? JSON.parse(text) : { result: [] };
    for (const { url: run, functions } of coverage.result) {
      const url = run.replace(STAGED, `${lib}hook/helpers/`);
      if (!url.startsWith(lib)) continue;
      const ranges = functions.flatMap((one) => one.ranges);
      const size = Math.max(...ranges.map((range) => range.endOffset));
      // Of two ranges around the same code the inner one counts.
      ranges.sort((a, b) => a.startOffset - b.startOffset || b.endOffset - a.endOffset);
      const own = new Uint8Array(size);
      for (const { startOffset, endOffset, count } of ranges) own.fill(count > 0 ? 1 : 0, startOffset, endOffset);
      const all = marks.get(url) ?? own;
      own.forEach((mark, at) => {
        all[at] ||= mark;
      });
      marks.set(url, all);
    }
  }
  const entries = [...marks].map(([url, marked]) => {
    const file = fileURLToPath(url);
    return [path.relative(tree, file), { digest: digestOf(file), ranges: rangesOf(marked) }] as const;
  });
  return Object.fromEntries(entries);
}

function rangesOf(marked: Uint8Array): number[] {
  const edges: number[] = [];
  for (let at = 0; at <= marked.length; at++) if ((marked[at] ?? 0) !== (marked[at - 1] ?? 0)) edges.push(at);
  return edges;
}

function digestOf(file: string): string {
  return createHash("sha256").update(readFileSync(file)).digest("hex");
}

/**
 * The test files that run the code of a mutant, the likeliest to notice for their time first: the file of the same
 * name, then those of the same room, then those that run much of the source. Where the source has changed since, all files that ran some of it count.
 * A thread that is ended tells nothing of the code that it ran: where no file is known to run it, those of the room are tried.
 */
export function testsThatSee(mutant: Mutant, all: readonly Reach[], tree: string): Reach[] {
  const digest = digestOf(path.join(tree, mutant.file));
  const mirror = mutant.file.replace(/^lib/, "test").replace(/\.ts$/, "");
  const room = path.dirname(mirror);
  const nearness = (file: string) => {
    if (file.startsWith(mirror)) return 100;
    if (path.dirname(file) === room) return 30;
    return folderOf(file) === folderOf(mutant.file) ? 3 : 1;
  };
  const weight = ({ file, ms, code }: Reach) => {
    const { ranges = [] } = code[mutant.file] ?? {};
    const reached = ranges.reduce((sum, edge, at) => sum + (at % 2 === 0 ? -edge : edge), 0);
    return ms / nearness(file) / Math.max(1, reached) ** 2;
  };
  const sound = all.filter(({ passed }) => passed);
  const seen = sound.filter(({ code }) => {
    const own = code[mutant.file];
    return own && (own.digest !== digest || covers(own.ranges, mutant));
  });
  const tried = seen.length > 0 ? seen : sound.filter(({ file }) => file.startsWith(`${room}/`));
  return tried.sort((a, b) => weight(a) - weight(b));
}

/** Whether the code at the beginning of the mutant has run. */
function covers(ranges: readonly number[], { start }: Mutant): boolean {
  return ranges.some((from, at) => at % 2 === 0 && from <= start && start < (ranges[at + 1] ?? 0));
}

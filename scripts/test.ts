// Runs tests: node scripts/test.ts [fast|coverage] [flag of node or file …]
// Without a file it runs all of them, or the fast ones (test/fast.json). The tests get a home and a folder for
// temporary files of their own, both removed at the end, one compile cache, which stays, and one seed for all random choices.
import { spawn, spawnSync } from "node:child_process";
import {
  accessSync,
  chmodSync,
  constants as fsConstants,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statfsSync,
  symlinkSync,
} from "node:fs";
import { constants, tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { isBelow, isFast } from "../test/helpers/fast.ts";
import { patience } from "./patience.ts";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
/** Files at once: three for each core of a small machine, since tests wait as long as they compute. */
const AT_ONCE = 6;
/** Where the files are that take longest. They start first, so that none of them runs on alone at the end. */
const LONG = ["test/e2e", "test/examples", "test/hook", "test/operation/deploy", "test/slow", "test/transport/ssh", "test/ui"];
/** The limit of a whole file; the longest takes two minutes on a quiet machine. */
const FILE_LIMIT_MS = 600_000;
/** The most files of compiled code that are kept: several times what one run makes. */
const MOST_COMPILED = 5_000;
/** A file system in memory. The tests make and flush thousands of small buckets, which is slow on a disk. */
const IN_MEMORY = "/dev/shm";
/** The bytes that have to be free there: several times what the tests use. */
const ROOM = 2 * 1024 ** 3;
const LIGHT = `--import=${new URL("light-tests.ts", import.meta.url).href}`;
const COVERAGE = ["--experimental-test-coverage", "--test-coverage-include=lib/**/*.ts", "--test-coverage-include=bin/*.js"];

function filesOf(mode: string): string[] {
  const all = globSync("test/**/*.test.ts", { cwd: ROOT });
  return mode === "fast" ? all.filter(isFast) : all;
}

/** Node starts files in the order of their names, and those with a path from the root first. */
function inOrder(file: string): string {
  return LONG.some((name) => isBelow(file, name)) ? path.join(ROOT, file) : file;
}

function environment(folder: string): NodeJS.ProcessEnv {
  const [home, programs] = ["home", "bin"].map((name) => path.join(folder, name)) as [string, string];
  for (const one of [home, programs]) mkdirSync(one, { mode: 0o700 });
  linkPython(path.join(programs, "python3"));
  const { XDG_CACHE_HOME: _, XDG_CONFIG_HOME: __, ...ours } = process.env;
  return {
    OPS_TEST_SEED: String(Date.now() % 1_000_000),
    ...ours,
    HOME: home,
    TMPDIR: folder,
    NODE_COMPILE_CACHE: compileCache(folder),
    PATH: `${programs}${path.delimiter}${ours.PATH}`,
  };
}

/**
 * The folder of compiled code, which stays from run to run: compiling what a short test file loads takes as long as its
 * tests. Modules of temporary folders are in it too, so that it is emptied when it has grown.
 */
function compileCache(folder: string): string {
  const kept = path.join(ROOT, "node_modules/.cache/ops-tests");
  try {
    mkdirSync(kept, { recursive: true });
    if (readdirSync(kept, { recursive: true }).length > MOST_COMPILED) rmSync(kept, { recursive: true });
    mkdirSync(kept, { recursive: true });
    accessSync(kept, fsConstants.W_OK);
    return kept;
  } catch {
    return path.join(folder, "compiled");
  }
}

/** The python3 on PATH may be a script that looks for the interpreter, at each of the tests' thousand starts. */
function linkPython(file: string): void {
  const program = "import sys; print(sys.executable)";
  const { stdout } = spawnSync("python3", ["-c", program], { encoding: "utf8" });
  if (stdout?.trim()) symlinkSync(stdout.trim(), file);
}

/** Where temporary files go: TMPDIR if it is set, else into memory if there is room and programs may run, else to disk. */
function placeOfFiles(): string {
  if (process.env.TMPDIR !== undefined || process.platform !== "linux") return tmpdir();
  const mounts = readFileSync("/proc/mounts", "utf8");
  if (!/^\S+ \/dev\/shm tmpfs (?!\S*noexec)/m.test(mounts)) return tmpdir();
  const { bavail, bsize } = statfsSync(IN_MEMORY);
  return bavail * bsize < ROOM ? tmpdir() : IN_MEMORY;
}

function run(mode: string, given: string[], folder: string): void {
  const isFile = (argument: string) => !argument.startsWith("--");
  const { true: chosen = filesOf(mode), false: flags = [] } = Object.groupBy(given, (one) => `${isFile(one)}`);
  const limits = [`--test-concurrency=${AT_ONCE}`, `--test-timeout=${patience(FILE_LIMIT_MS)}`];
  const argv = ["--test", LIGHT, ...limits, ...(mode === "coverage" ? COVERAGE : []), ...flags, ...chosen.map(inOrder)];
  // V8 counts what it takes from a cache less exactly.
  const env: NodeJS.ProcessEnv = { ...environment(folder), ...(mode === "coverage" && { NODE_DISABLE_COMPILE_CACHE: "1" }) };
  const child = spawn(process.execPath, argv, { cwd: ROOT, env, stdio: "inherit" });
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(signal, () => child.kill(signal));
  child.on("exit", (code, signal) => {
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    process.exitCode = code ?? 128 + constants.signals[signal as NodeJS.Signals];
    if (process.exitCode !== 0)
      console.error(`The tests failed. Again with the same random choices: OPS_TEST_SEED=${env.OPS_TEST_SEED}`);
  });
}

const given = process.argv.slice(2);
const [mode = "all"] = ["fast", "coverage"].includes(given[0] as string) ? given.splice(0, 1) : [];
// Tests expect the modes that they ask for.
process.umask(0o022);
const folder = mkdtempSync(path.join(placeOfFiles(), "ops-tests-"));
// Some tests work as another user, who must get through this folder.
chmodSync(folder, 0o711);
run(mode, given, folder);

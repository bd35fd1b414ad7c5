import { execFile, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { LocalServer } from "../scripts/local-server.ts";
import { sideBySide, timed } from "./measure.ts";

const runAsync = promisify(execFile);
const FOLDERS = 500;
const FILES = 19_000;
const CHANGED = 10;
const ROUNDS = 3;

/**
 * A source of 19,000 small files, from the first byte of the push to its 202, beside `tar x` and `sync -f` of the same
 * archive on the same disk: into a new bucket, and once more after ten files have changed. Beside both is the least that
 * a program has to do which keeps revisions as trees: two trees are written, or one is linked, beside one that reads the
 * archive and compares it. Nothing is removed meanwhile, because some file systems make files slowly for minutes after
 * many were removed.
 */
export async function push(): Promise<void> {
  // On a disk: in memory a flush costs nothing.
  const folder = mkdtempSync(path.join(tmpdir(), "ops-bench-"));
  const server = await LocalServer.start(path.join(folder, "root"), { quiet: true });
  const source = path.join(folder, "source");
  const archive = path.join(folder, "source.tar");
  try {
    writeSource(source);
    let bucket = "";
    let places = 0;
    const newPlace = () => path.join(folder, `place-${places++}`);
    const unpack = (copies: number) => {
      pack(source, archive);
      const targets = Array.from({ length: copies }, newPlace);
      for (const target of targets) mkdirSync(target);
      return timed(async () => {
        await Promise.all(targets.map((target) => runAsync("tar", ["-C", target, "-xf", archive])));
        run("sync", "-f", folder);
      });
    };
    const link = (compare: boolean) => {
      const [first, target] = [path.join(folder, "place-0"), newPlace()];
      return timed(async () => {
        await Promise.all([compare && differs(first, archive), runAsync("cp", ["-al", first, target])]);
        run("sync", "-f", folder);
      });
    };
    const send = () => pushed(server, bucket, archive);
    console.log(`push of ${FILES} files of about 1 KB in ${FOLDERS} folders until its 202, ${cpus().length} cores`);
    await sideBySide(ROUNDS, {
      "tar x and sync -f": () => unpack(1),
      "two tar x at once and sync -f": () => unpack(2),
      "cp -al and sync -f": () => link(false),
      "cp -al beside tar -d, and sync -f": () => link(true),
      "first push": async () => {
        bucket = await server.createBucket();
        return await send();
      },
      "push with ten changed files": async () => {
        change(source);
        pack(source, archive);
        return await send();
      },
    });
  } finally {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Milliseconds until a push is answered; waits for the end of its build, which fails: its jobs have no manifests. */
async function pushed(server: LocalServer, bucket: string, archive: string): Promise<number> {
  const headers = { authorization: `Bearer ${server.token}`, "content-type": "application/x-tar" };
  const body = readFileSync(archive);
  let run = "";
  const ms = await timed(async () => {
    const answer = await fetch(`${server.url}/api/buckets/${bucket}/push`, { method: "POST", headers, body });
    if (answer.status !== 202) throw new Error(`push: ${answer.status} ${await answer.text()}`);
    run = ((await answer.json()) as { run_id: string }).run_id;
  });
  await server.follow(bucket, run);
  return ms;
}

/** Reads an archive to its end and compares it with a tree; whether they are the same does not matter here. */
async function differs(tree: string, archive: string): Promise<void> {
  await runAsync("tar", ["-C", tree, "-df", archive]).catch((error: { code?: unknown }) => {
    if (error.code !== 1) throw error;
  });
}

function writeSource(source: string): void {
  for (let index = 0; index < FILES; index++) {
    const folder = path.join(source, "workspace", "jobs", `job_${index % FOLDERS}`);
    if (index < FOLDERS) mkdirSync(folder, { recursive: true });
    writeFileSync(path.join(folder, `file_${index}`), randomBytes(512).toString("hex"));
  }
  writeFileSync(path.join(source, "workspace", "workers.json"), "[]\n");
}

function change(source: string): void {
  for (let index = 0; index < CHANGED; index++)
    writeFileSync(path.join(source, "workspace", "jobs", `job_${index}`, `file_${index}`), randomBytes(512).toString("hex"));
}

function pack(source: string, archive: string): void {
  run("tar", "-C", source, "--format=ustar", "-cf", archive, "workspace");
}

function run(program: string, ...args: string[]): void {
  const { status, stderr } = spawnSync(program, args, { encoding: "utf8" });
  if (status !== 0) throw new Error(`${program}: ${stderr}`);
}

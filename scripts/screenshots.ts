// `npm run screenshots`: writes every screen of the console to screenshots/; with a folder as argument, there. What they
// show is real: a server, and a bucket of 30 jobs on 40 workers of this machine that is deployed well, then with trouble.
// Only the bucket with 1,000 workers is built and never deployed: how its allocations are is written to its database.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { openDatabase } from "../lib/bucket/base/database.ts";
import { layoutOf } from "../lib/bucket/base/layout.ts";
import { setLastOutcome } from "../lib/bucket/catalog/info.ts";
import { remove } from "../lib/core/files.ts";
import { ConsolePage } from "../test/helpers/browser.ts";
import { certificateFor } from "../test/helpers/http.ts";
import { deployFleet, driftFleet, type Fleet, holdOf, markPromoted, pushFleet } from "./fleet-example.ts";
import { LocalServer } from "./local-server.ts";
import { patience } from "./patience.ts";
import * as screens from "./screens.ts";

/** Any secret of an authenticator app, in base32. */
const TOTP_SECRET = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
/** The moving picture of a deploy: how large, and how often. */
const [FRAME, FRAME_MS] = [{ width: 1200, height: 860 }, 200];
/** The longest time for a part of that deploy on a quiet machine. */
const PART_MS = 180_000;
const LARGE = { workers: 1_000, rack: 25 };

const target = path.resolve(process.argv[2] ?? fileURLToPath(new URL("../screenshots", import.meta.url)));
const folder = mkdtempSync(path.join(tmpdir(), "ops-screenshots-"));
const wide: string[] = [];
const ends: (() => void)[] = [];
try {
  await withServer("root", [], workingDay);
  await withServer("first", [], firstSteps);
  const { certFile, keyFile } = await certificateFor({ after: (end) => ends.push(end as () => void) });
  const secret = path.join(folder, "totp");
  writeFileSync(secret, TOTP_SECRET, { mode: 0o600 });
  const flags = ["--tls-cert", certFile, "--tls-key", keyFile, "--totp-secret-file", secret];
  await withServer("codes", flags, (server, ui) => shoot(ui, [screens.codeScreen(server.token)]));
} finally {
  for (const end of ends) end();
  await remove(folder);
}
for (const one of wide) process.stderr.write(`wider than its page: ${one}\n`);

/** A server of its own with a page of its console. */
async function withServer(name: string, flags: string[], work: (server: LocalServer, ui: ConsolePage) => Promise<unknown>) {
  const server = await LocalServer.start(path.join(folder, name), { flags });
  try {
    const ui = await ConsolePage.open(server.url, { ignoreHTTPSErrors: true });
    try {
      await work(server, ui);
      ui.checkPeace();
    } finally {
      await ui.close();
    }
  } finally {
    await server.stop();
  }
}

async function shoot(ui: ConsolePage, some: readonly screens.Screen[]): Promise<void> {
  wide.push(...(await screens.shoot(ui, target, some)));
}

async function firstSteps(server: LocalServer, ui: ConsolePage): Promise<void> {
  await shoot(ui, screens.SIGN_IN);
  await ui.signIn(server.token);
  await shoot(ui, screens.EMPTY);
  await shoot(ui, [screens.guideScreen(await server.createBucket("hello"))]);
}

async function workingDay(server: LocalServer, ui: ConsolePage): Promise<void> {
  await ui.goTo("");
  await ui.signIn(server.token);
  const fleet = await deployFleet(server, folder);
  const id = fleet.bucket;
  const large = await largeBucket(server);
  await shoot(ui, screens.calmScreens({ fleet: id }));
  markLarge(large);
  for (const kind of ["workers/facts", "workers/sysstat"]) await server.run(id, kind);
  await server.run(id, "snapshots", { note: "before the new versions" });
  await driftFleet(server, fleet);
  await pushFleet(server, fleet, "mended");
  const plan = (await server.run(id, "deploy", { dry_run: true })).id;
  await shoot(ui, screens.planScreens({ fleet: id, plan }));
  await pushFleet(server, fleet, "failing");
  const failed = await liveDeploy(server, ui, fleet);
  await server.run(id, "workers/uptime");
  const command = 'case "$PWD" in *b-00*) echo "df: /srv/kafka: 0 bytes free" >&2; exit 3;; *) uname -sr;; esac';
  const answers = (await server.run(id, "run_command", { command, concurrency: 40, ignore_failure: true })).id;
  const { body } = await server.call<{ items: { id: string }[] }>("GET", `/api/buckets/${id}/source/revisions`);
  const revision = body.items[0]?.id ?? "";
  await server.call("POST", "/api/buckets", { project: "payments", name: "ledger" });
  const fresh = await server.createBucket("cache");
  await shoot(ui, screens.screensOf({ fleet: id, large, fresh, failed, answers, revision }));
  await shoot(ui, [{ name: "docs", at: "docs/" }]);
  await shoot(ui, [screens.staleScreen({ fleet: id })]);
}

/** Deploys all again, which now fails, with the moving picture of it; while nginx waits, the screens of a deploy that goes on are taken. */
async function liveDeploy(server: LocalServer, ui: ConsolePage, fleet: Fleet): Promise<string> {
  const hold = holdOf(fleet.workers);
  writeFileSync(hold, "");
  const film = await ConsolePage.open(server.url, FRAME);
  try {
    await film.goTo("");
    await film.signIn(server.token);
    await film.goTo(`#/buckets/${fleet.bucket}`);
    await film.page.locator("main .map [role=gridcell]").first().waitFor();
    const run = await server.startRun(fleet.bucket, "deploy", { force: true });
    const progress = () => server.call<RunProgress>("GET", `/api/buckets/${fleet.bucket}/runs/${run}`);
    const isHeld = async () => {
      const { status, progress: seen } = (await progress()).body;
      if (status !== "running") throw new Error(`the deploy ${status} before nginx waited`);
      return seen?.jobs.every(isDoneOrHeld) ?? false;
    };
    let frames = await record(film, 0, isHeld);
    await shoot(ui, screens.liveScreens({ fleet: fleet.bucket, run }));
    rmSync(hold);
    const isOver = async () => (await progress()).body.status !== "running";
    frames = await record(film, frames, isOver);
    return run;
  } finally {
    rmSync(hold, { force: true });
    await film.close();
  }
}

interface RunProgress {
  status: string;
  progress: { jobs: { job: string; wave: number; state: string }[] } | null;
}

/** Whether nothing but nginx is left to do in its wave, 1, and the one before. */
function isDoneOrHeld({ job, wave, state }: { job: string; wave: number; state: string }): boolean {
  return job === "nginx" ? state === "running" : wave > 1 || !/running|waiting/.test(state);
}

/** Takes frames until something is so; answers how many there are. Throws where that takes longer than a part of a deploy may. */
async function record({ page }: ConsolePage, first: number, isEnd: () => Promise<boolean>): Promise<number> {
  mkdirSync(path.join(target, "frames"), { recursive: true });
  let frame = first;
  const limit = patience(PART_MS);
  const deadline = performance.now() + limit;
  for (let ended = false; !ended; ) {
    if (performance.now() > deadline) throw new Error(`the deploy did not go on within ${limit / 1000} s`);
    ended = await isEnd();
    await page.screenshot({ path: path.join(target, "frames", `${String(frame++).padStart(4, "0")}.png`) });
    await page.waitForTimeout(FRAME_MS);
  }
  return frame;
}

/** A bucket of 10 jobs on 1,000 workers in racks, built. */
async function largeBucket(server: LocalServer): Promise<string> {
  const { body } = await server.call<{ id: string }>("POST", "/api/buckets", { project: "edge", name: "sensors" });
  const source = path.join(folder, "large");
  const write = (file: string, content: string | object) => {
    const place = path.join(source, "workspace", file);
    mkdirSync(path.dirname(place), { recursive: true });
    writeFileSync(place, typeof content === "string" ? content : JSON.stringify(content));
  };
  const workers = Array.from({ length: LARGE.workers }, (_, index) => {
    const rack = `r${String(1 + Math.floor(index / LARGE.rack)).padStart(2, "0")}`;
    const tags = { rack, zone: index % 2 === 0 ? "north" : "south" };
    const host = `${rack}-${String(index % LARGE.rack).padStart(2, "0")}`;
    return { host, connection: "local", root: `/srv/${host}`, labels: ["all"], tags };
  });
  write("workers.json", workers);
  for (const job of ["agent", "buffer", "clock", "collector", "gateway", "journal", "metrics", "relay", "sampler", "updater"]) {
    write(`jobs/${job}/manifest.json`, { version: "2.0.0", selectors: ["all"] });
    write(`jobs/${job}/Makefile`, "start stop restart reload status:\n\t@true\n");
  }
  const { code, stderr } = await server.push(body.id, source);
  if (code !== 0) throw new Error(stderr);
  return body.id;
}

/** Nine jobs are promoted everywhere; agent failed on 15 workers and 4 workers were unreachable. */
function markLarge(bucket: string): void {
  const { database } = layoutOf(path.join(folder, "root", bucket));
  const rows = markPromoted(database, ["updater"]);
  const of = (job: string, first: number, last: number) => rows.filter((row) => row.job === job).slice(first, last);
  const failed = { action: "restart", outcome: "failed", reason: "agent: cannot bind 0.0.0.0:7001: address in use" } as const;
  const silent = { action: "sync", outcome: "unreachable", reason: "ssh: connect to port 22: timed out" } as const;
  using db = openDatabase(database);
  for (const { id } of of("agent", 160, 175)) setLastOutcome(db, id, "run", failed);
  for (const { id } of of("relay", 300, 304)) setLastOutcome(db, id, "run", silent);
}

// The process of a real server is killed while it starts what a schedule has due.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { openDatabase } from "../../lib/bucket/base/database.ts";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { LocalServer, type Run } from "../../scripts/local-server.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const DYING = new URL("../fixtures/dying-command.ts", import.meta.url).href;
const EVERY = { name: "uptime", every: "744h", kind: "worker_uptime", catch_up: true };
const EVERY_MS = 744 * 3_600_000;
/** Since 1970 nothing was done about it, so that a due time waits for the server. */
const STATE = {
  rhythm: JSON.stringify([{ everyMs: EVERY_MS }, 0]),
  decided: new Date(0).toISOString(),
  last: null,
  paused: null,
};
type Scheduled = Run & { schedule: { due: string } };
type Listed = { items: { last: { due: string; run_id: string; status: string } | null }[] };

for (const point of ["run: folder", "run: recorded", "run: launched", "run: ordered"])
  test(`CP-963 a server that is killed at "${point}" of a due run: the next ones start it once, and no more`, async (t) => {
    const root = path.join(temporaryFolder(t), "root");
    const servers: LocalServer[] = [];
    t.after(async () => {
      for (const server of servers) await server.stop("SIGKILL");
    });
    const start = async (env: NodeJS.ProcessEnv = {}) => {
      const server = await LocalServer.start(root, { env });
      servers.push(server);
      return server;
    };
    const first = await start();
    const id = await first.createBucket();
    await first.stop();
    const layout = layoutOf(path.join(root, id));
    {
      using db = openDatabase(layout.database);
      db.run("UPDATE bucket SET schedules = ?", JSON.stringify({ schedules: [EVERY] }));
    }
    writeFileSync(layout.scheduleStates, JSON.stringify({ uptime: STATE }));
    // It may die before it has printed its address.
    const dying = await start({ NODE_OPTIONS: `--import=${DYING}`, OPS_TEST_FAULT: `${point} 1` }).catch(() => undefined);
    if (dying?.process.exitCode === null && dying.process.signalCode === null) await once(dying.process, "exit");
    assert.equal(dying?.process.signalCode ?? "SIGKILL", "SIGKILL");
    assert.equal(JSON.parse(readFileSync(layout.scheduleStates, "utf8")).uptime.last, null, "the start was not noted");
    for (let again = 0; again < 2; again++) {
      const server = await start();
      const last = async () => (await server.call<Listed>("GET", `/api/buckets/${id}/schedules`)).body.items[0]?.last;
      await until("the run has ended", async () => ((await last())?.status ?? "running") !== "running");
      const { items } = (await server.call<{ items: Scheduled[] }>("GET", `/api/buckets/${id}/runs`)).body;
      const due = new Date(Math.floor(Date.now() / EVERY_MS) * EVERY_MS).toISOString();
      assert.deepEqual(
        items.map((run) => [run.id, run.schedule.due]),
        [[(await last())?.run_id, due]],
      );
      await server.stop();
    }
  });

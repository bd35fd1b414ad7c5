// A server process that is killed with SIGKILL at each step from the end of a run to the message about it.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Receiver, storeNotify } from "../helpers/receiver.ts";
import { TestServer, TOKEN } from "../helpers/server.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const SERVER = fileURLToPath(new URL("../fixtures/faulty-server.ts", import.meta.url));
/** The first writing of what is kept comes with the first look, before the run. */
const POINTS = ["run: recorded", "run: exited", "run: unlocked", "message: tried"];

/** Starts a server on the root that dies at a point, asks it for a build, and waits for its death. */
async function dieAt(point: string, root: string, bucketPath: string): Promise<void> {
  const child: ChildProcess = spawn(process.execPath, [SERVER, root, point, TOKEN], {
    stdio: ["ignore", "pipe", "ignore"],
    env: process.env,
  });
  const exited = once(child, "exit");
  const [line] = await once(createInterface({ input: child.stdout as NodeJS.ReadableStream }), "line");
  const url = `${String(line).replace("listening on ", "")}${bucketPath}/build`;
  const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };
  await fetch(url, { method: "POST", headers, body: "{}" }).catch(() => {});
  const [, signal] = await exited;
  assert.equal(signal, "SIGKILL", point);
}

for (const point of POINTS)
  test(`CP-862 CP-863 a server that is killed at "${point}" loses no message, and repeats one only under its id`, async (t) => {
    const receiver = await Receiver.start(t);
    const first = await TestServer.start(t, { root: path.join(temporaryFolder(t), "root") });
    const bucket = await first.createBucket();
    const file = { targets: { hook: { webhook: receiver.url, private: true } }, send: [{ to: ["hook"] }] };
    storeNotify(bucket.folder, file);
    const workspace = path.join(bucket.folder, "workspace");
    mkdirSync(workspace);
    writeFileSync(path.join(workspace, "notify.json"), JSON.stringify(file));
    writeFileSync(path.join(workspace, "workers.json"), "nonsense");
    await until("the bucket is known", async () => {
      const { items } = (await first.call("GET", `${bucket.path}/messages/targets`)).body;
      return items.length === 1;
    });
    await first.stop();
    await dieAt(point, first.root, bucket.path);
    await first.open();
    const incidents = async () => (await first.call("GET", `${bucket.path}/incidents`)).body.items;
    const sent = async () => (await first.call("GET", `${bucket.path}/messages?state=sent`)).body.items;
    await until("the message is sent", async () => (await sent()).length === 1);
    const [incident, ...others] = await incidents();
    assert.deepEqual([others, incident.event, incident.over_at], [[], "run_failed", null]);
    const [run] = (await first.call("GET", `${bucket.path}/runs`)).body.items;
    assert.deepEqual([run.status, incident.run_id], ["failed", run.id]);
    const ids = new Set(receiver.bodies.map(({ id }) => id));
    assert.equal(ids.size, 1);
    // The receiver had it, and the server could not note that any more.
    if (point === "message: tried") assert.equal(receiver.received.length, 2);
  });

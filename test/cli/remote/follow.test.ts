import assert from "node:assert/strict";
import { test } from "node:test";
import type { ApiClient, CallOptions } from "../../../lib/cli/remote/client.ts";
import { followRun, type StartRequest, startOnServer } from "../../../lib/cli/remote/follow.ts";
import { RemoteBucket } from "../../../lib/cli/remote/remote-bucket.ts";
import { Failure } from "../../../lib/core/errors.ts";

const ID = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70";

/** A start in a bucket that is always busy; `stop` is aborted before it, or while the server is asked. Answers what was asked. */
async function startWhenBusy(request: Partial<StartRequest>, stopped: "never" | "before" | "meanwhile" = "never") {
  const [asked, told, stop]: [string[], string[], AbortController] = [[], [], new AbortController()];
  if (stopped === "before") stop.abort();
  const call = async (method: string, path: string, { signal }: CallOptions) => {
    signal?.throwIfAborted();
    asked.push(`${method} ${path.replace(`/api/buckets/${ID}`, "").replace(/[0-9a-f-]{36}/, "<key>")}`);
    if (method === "DELETE") return {};
    if (stopped === "meanwhile") stop.abort();
    throw new Failure("bucket_busy", "busy", { details: { position: 1 } });
  };
  const bucket = new RemoteBucket({ call } as unknown as ApiClient, ID);
  const follower = { signal: stop.signal, tell: (text: string) => void told.push(text), output() {} };
  const start = startOnServer(bucket, { path: "/gc", json: {}, ...request }, follower);
  return { error: await start.then(assert.fail, (error: { code?: string }) => error), asked, told };
}

test("a start leaves its place in line when its time is over, and when it is stopped: then nothing else is asked for", async () => {
  const over = await startWhenBusy({ waitMs: 0 });
  assert.deepEqual([over.error.code, over.asked], ["bucket_busy", ["POST /gc", "DELETE /queue/<key>"]]);
  const stopped = await startWhenBusy({ waitMs: 60_000 }, "meanwhile");
  assert.deepEqual([stopped.error.code, stopped.asked[0]], ["cancelled", "POST /gc"]);
  assert.deepEqual([...new Set(stopped.asked.slice(1))], ["DELETE /queue/<key>"]);
});

test("what is stopped before its upload begins sends nothing", async () => {
  const { asked, told } = await startWhenBusy({ async *body() {} }, "before");
  assert.deepEqual([asked, told], [[], ["the upload was ended before all of it was sent: nothing has changed"]]);
});

test("what is stopped before a run is followed cancels the run; after its end nothing is asked for any more", async () => {
  const [asked, stop]: [string[], AbortController] = [[], new AbortController()];
  const call = async (method: string, path: string) => {
    asked.push(`${method} ${path.replace(`/api/buckets/${ID}/runs/${ID}`, "")}`);
    return path.includes("/logs?") ? { next: 0, data: "", done: true } : { status: "succeeded", error: null, result: null };
  };
  const bucket = new RemoteBucket({ call } as unknown as ApiClient, ID);
  const follow = () => followRun(bucket, ID, { signal: stop.signal, tell() {}, output() {} });
  await follow();
  const before = asked.length;
  stop.abort();
  assert.deepEqual([asked.includes("POST /cancel"), asked.length], [false, before], asked.join());
  await follow();
  assert.ok(asked.includes("POST /cancel"), asked.join());
});

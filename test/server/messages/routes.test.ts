import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import type { Answer } from "../../../lib/http/message.ts";
import { MESSAGE_ROUTES } from "../../../lib/server/messages/routes.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const PATHS = ["incidents", "messages", "messages/targets", "messages/test", "messages/{message_id}/retry"];

/** Asks the routes about a bucket, as an admin. */
function asker(t: TestContext) {
  const [root, id] = [temporaryFolder(t), uuidV7()];
  mkdirSync(path.join(root, id));
  writeFileSync(path.join(root, id, "bucket.json"), "{}");
  const identity = { role: "admin", ends: new AbortController().signal };
  const ask = async (address: string, call: Record<string, unknown>, messenger: object) => {
    const found = MESSAGE_ROUTES.find((one) => one.path.endsWith(`/${address}`)) ?? assert.fail(address);
    const handle = found.handle as unknown as (call: object, context: object) => Promise<Answer>;
    const params = { bucket_id: id, ...(call.params as object) };
    const whole = { query: { limit: 50 }, request: { signal: "signal" }, ...call, params };
    const { status, body } = await handle(whole, { messenger, root, labels: "bucket.json", identity });
    assert.equal(status, 200);
    return JSON.parse(String(body)) as { items: { id: string }[]; next_cursor: string | null };
  };
  return { ask, id };
}

const keeping = (state: object, notify: object = {}) => ({
  kept: async () => ({ state: { incidents: [], messages: [], ...state }, notify: { targets: {}, send: [], ...notify } }),
});

test("each route of messages is there, and only those that send something need more than the role read", () => {
  assert.deepEqual(
    MESSAGE_ROUTES.map(({ path, role }) => `${path.split("/").slice(4).join("/")} ${role}`),
    PATHS.map((path, at) => `${path} ${at < 3 ? "read" : "deploy"}`),
  );
});

test("open incidents come before those that are over, each newest first, in pages, with the first 100 places", async (t) => {
  const { ask } = asker(t);
  const incident = (id: string, over_at: string | null) => ({ id, over_at, settled: true, left: ["a"], places: ["a", "b"] });
  const incidents = [incident("1", null), incident("2", "x"), incident("3", null), incident("4", "x")];
  const page = async (query: object) => {
    const { items, next_cursor } = await ask("incidents", { query }, keeping({ incidents }));
    return [items.map(({ id }) => id).join(""), next_cursor];
  };
  assert.deepEqual(await page({ limit: 4 }), ["3142", null]);
  assert.deepEqual(await page({ limit: 3 }), ["314", "3"]);
  assert.deepEqual(await page({ limit: 3, cursor: "3" }), ["2", null]);
  const places = Array.from({ length: 101 }, (_, at) => `p${at}`);
  const one = { ...incident("1", null), places };
  const { items } = await ask("incidents", {}, keeping({ incidents: [one] }));
  const { settled: _, left: __, ...shown } = one;
  assert.deepEqual(items, [{ ...shown, places: places.slice(0, 100), place_count: 101, left_count: 1 }]);
});

test("messages are listed newest first, all or those in one state", async (t) => {
  const { ask } = asker(t);
  const messages = ["waiting", "sent", "failed", "sent"].map((state, at) => ({ id: `${at}`, state }));
  const list = async (query: object) => {
    const { items, next_cursor } = await ask("messages", { query: { limit: 3, ...query } }, keeping({ messages }));
    return [items.map(({ id }) => id).join(""), next_cursor];
  };
  assert.deepEqual(
    [await list({}), await list({ cursor: "3" })],
    [
      ["321", "3"],
      ["0", null],
    ],
  );
  assert.deepEqual(
    [await list({ state: "sent" }), await list({ state: "waiting" })],
    [
      ["31", null],
      ["0", null],
    ],
  );
});

test("a target is shown with what it is told of and what waits, and of its address only what is no secret", async (t) => {
  const { ask } = asker(t);
  const targets = {
    open: { webhook: "https://hook.example:8443/path?key=word", body: "json" },
    hidden: { webhook: { secret: "address" }, body: "slack" },
    told: { command: ["/opt/tell", "--now"], body: "text" },
  };
  const send = [
    { to: ["open", "told"], events: ["drift", "run_failed"] },
    { to: ["open"], events: ["run_failed", "recovered"] },
  ];
  const message = (target: string, state: string, sent_at: string | null = null) => ({ target, state, sent_at });
  const messages = [
    message("open", "sent", "2026-11-02"),
    message("open", "sent", "2026-11-03"),
    message("open", "sent", "2026-11-01"),
    message("open", "waiting"),
    message("told", "failed"),
    message("told", "waiting"),
    message("told", "failed"),
  ];
  const { items } = await ask("messages/targets", {}, keeping({ messages }, { targets, send }));
  const shown = (name: string, kind: string, address: string, body: string, events: string[]) => ({
    name,
    kind,
    address,
    body,
    events,
  });
  assert.deepEqual(items, [
    {
      ...shown("open", "webhook", "https://hook.example:8443", "json", ["drift", "run_failed", "recovered"]),
      ...{ waiting: 1, failed: 0, last_sent_at: "2026-11-03" },
    },
    { ...shown("hidden", "webhook", "secret address", "slack", []), waiting: 0, failed: 0, last_sent_at: null },
    { ...shown("told", "command", "/opt/tell", "text", ["drift", "run_failed"]), waiting: 1, failed: 2, last_sent_at: null },
  ]);
});

test("a test goes to the target in small letters while its client is there, a retry to the message", async (t) => {
  const { ask, id } = asker(t);
  const asked: unknown[][] = [];
  const note =
    (answer: object) =>
    async (...given: unknown[]) => {
      const [bucket, ...others] = given as [{ id: string }];
      asked.push([bucket.id, ...others]);
      return answer;
    };
  const messenger = { test: note({ id: "1", error: null }), retry: note({ id: "2" }) };
  assert.deepEqual(await ask("messages/test", { body: { target: "Hook" } }, messenger), { id: "1", error: null });
  assert.deepEqual(await ask(PATHS[4] ?? "", { params: { message_id: "7" }, body: {} }, messenger), { id: "2" });
  assert.deepEqual(asked, [
    [id, "hook", "signal"],
    [id, "7"],
  ]);
});

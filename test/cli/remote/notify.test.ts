import assert from "node:assert/strict";
import { test } from "node:test";
import { ops } from "../../helpers/command-line.ts";
import { Receiver, storeNotify } from "../../helpers/receiver.ts";
import { TestServer, TOKEN } from "../../helpers/server.ts";

test("CP-872 ops notify test ends with 0 where the target takes the message, else with 1 and why; retry sends what has failed", async (t) => {
  const receiver = await Receiver.start(t);
  const server = await TestServer.start(t);
  const { id, folder } = await server.createBucket();
  storeNotify(folder, { targets: { hook: { webhook: receiver.url, private: true } }, send: [{ to: ["hook"] }] });
  const env = { OPS_SERVER: server.url, OPS_SERVE_TOKEN: TOKEN, OPS_BUCKET: id };
  const notify = (...words: string[]) => ops(["notify", ...words], { env });

  const taken = await notify("test", "hook");
  assert.deepEqual([taken.code, taken.stderr], [0, ""]);
  assert.match(taken.stdout, /^hook has taken message [0-9a-f-]{36}\n$/);
  receiver.behaviour = (response) => void response.writeHead(500).end();
  assert.deepEqual(await notify("test", "hook"), {
    code: 1,
    stdout: "",
    stderr: "hook has not taken the test: the answer is 500\n",
  });
  const told = await notify("test", "hook", "--json");
  assert.deepEqual([told.code, JSON.parse(told.stdout).error, told.stderr], [1, "the answer is 500", ""]);
  const unknown = await notify("test", "nobody");
  assert.equal(unknown.code, 1);
  assert.match(unknown.stderr, /^ops: .*"nobody"/);
  const none = await notify("retry", "0198f3a2");
  assert.equal(none.code, 1, none.stdout);
  assert.equal(receiver.received.length, 3);
});

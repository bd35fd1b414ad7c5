import assert from "node:assert/strict";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { type ClientRequest, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { test } from "node:test";
import { remoteVerifySnapshot } from "../../../lib/cli/remote/upkeep.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { TOKEN } from "../../helpers/server.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

test("ops snapshot verify waits ten minutes for the server's verdict", async (t) => {
  const name = "20260101T000000.000Z-00000000";
  const server = createServer((request, response) => {
    const isList = request.method === "GET";
    response.end(JSON.stringify(isList ? { items: [{ name }], next_cursor: null } : { error: "it is damaged" }));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const tokenFile = path.join(temporaryFolder(t), "token");
  writeFileSync(tokenFile, TOKEN, { mode: 0o600 });
  const waits: [method: string, ms: number | undefined][] = [];
  const note = (message: unknown) => {
    const { method, timeout } = (message as { request: ClientRequest & { timeout?: number } }).request;
    waits.push([method, timeout]);
  };
  subscribe("http.client.request.start", note);
  t.after(() => unsubscribe("http.client.request.start", note));
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const input = { operands: [name], values: new Map(), switches: new Set<string>() };
  const target = {
    address,
    bucket: uuidV7(),
    tokenFile,
    fromFolder: false,
    caFile: undefined,
    folderCa: undefined,
    totp: undefined,
  };
  await assert.rejects(remoteVerifySnapshot(input, target), { code: "failed", message: "it is damaged" });
  assert.deepEqual(waits, [
    ["GET", 120_000],
    ["GET", 120_000],
    ["POST", 600_000],
  ]);
});

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import { type AddressInfo, createServer as createPlainServer, type Server } from "node:net";
import { type TestContext, test } from "node:test";
import { openClient, type Proof } from "../../../lib/cli/remote/client.ts";
import { until } from "../../helpers/temporary.ts";

/** A client of a server that answers like this. */
async function clientOf(t: TestContext, handle: RequestListener, proof: Proof = { token: "a-token" }) {
  const server = createServer(handle);
  t.after(() => server.close().closeAllConnections());
  return await clientAt(server, proof);
}

async function clientAt(server: Server, proof: Proof = { token: "a-token" }) {
  await once(server.listen(0, "127.0.0.1"), "listening");
  return await openClient(new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`), proof);
}

const refusal = (status: number, error: string): RequestListener => {
  const body = JSON.stringify({ error, message: `it is ${error}` });
  return (_, response) => void response.writeHead(status).end(body);
};

test("a person is asked for a code where the server wants one, and not for what cannot be sent again or is aside", async (t) => {
  let asked = 0;
  const askCode = async () => void asked++;
  const wanting = await clientOf(t, refusal(403, "totp_required"), { token: "a-token", askCode });
  const other = await clientOf(t, refusal(404, "not_found"), { token: "a-token", askCode });
  async function* body() {}
  await assert.rejects(other.call("GET", "/"), { code: "not_found" });
  await assert.rejects(wanting.call("POST", "/", { body: body() }), { code: "totp_required" });
  await assert.rejects(wanting.call("GET", "/", { isAside: true }), { code: "totp_required" });
  assert.equal(asked, 0);
  await assert.rejects(wanting.call("GET", "/"), { code: "totp_required" });
  assert.equal(asked, 1);
});

test("an answer that comes before the body was sent whole ends what makes the body", async (t) => {
  const text = '{"error":"bucket_busy","message":"busy"}';
  const answer = `HTTP/1.1 409 Conflict\r\nContent-Length: ${text.length}\r\n\r\n${text}`;
  // It reads no more, and leaves the connection open.
  const server = createPlainServer((socket) => void socket.once("readable", () => socket.write(answer)));
  t.after(() => server.close());
  const client = await clientAt(server);
  let isOver = false;
  async function* body() {
    try {
      for (;;) yield Buffer.alloc(65_536);
    } finally {
      isOver = true;
    }
  }
  await assert.rejects(client.call("POST", "/", { body: body() }), { code: "bucket_busy" });
  await until("the end of the body", () => isOver);
});

test("a session that the server takes back is not sent any more", async (t) => {
  const set = ["a=1; Path=/", "b=2; Path=/", "a=; Max-Age=0"];
  const client = await clientOf(t, (_, response) => void response.setHeader("Set-Cookie", set).end("{}"));
  await client.call("GET", "/");
  assert.equal(client.cookies(), "b=2");
});

test("a body that is refused or cut fails as an answer does, and whoever leaves it closes the connection", async (t) => {
  const refused = await clientOf(t, refusal(404, "not_found"));
  await assert.rejects(Array.fromAsync(refused.stream("GET", "/")), { code: "not_found" });
  const cut = await clientOf(t, (request) => void request.socket.destroy());
  const message = /^Cannot reach .*: the connection was closed without an answer$/;
  await assert.rejects(Array.fromAsync(cut.stream("GET", "/")), { code: "failed", message });
  let hasLeft = false;
  const endless = await clientOf(t, (request, response) => {
    request.socket.once("close", () => {
      hasLeft = true;
    });
    response.write("piece");
  });
  for await (const piece of endless.stream("GET", "/")) {
    assert.equal(String(piece), "piece");
    break;
  }
  await until("the end of the connection", () => hasLeft);
});

test("an answer of more than 16 MiB is refused", async (t) => {
  const client = await clientOf(t, (_, response) => response.end(Buffer.alloc(16 * 1024 * 1024 + 1)));
  const message = "Cannot use the server's answer: it has more than 16777216 bytes";
  await assert.rejects(client.call("GET", "/"), { code: "failed", message });
});

import assert from "node:assert/strict";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { Socket } from "node:net";
import { test } from "node:test";
import { sendPost } from "../../../lib/server/messages/webhook.ts";
import { Receiver } from "../../helpers/receiver.ts";

const POST = { method: "POST", headers: {}, body: "{}", isPrivate: true } as const;

test("CP-867 of an answer that goes on nothing more is read: its connection is cut", async (t) => {
  const receiver = await Receiver.start(t);
  const sockets: Socket[] = [];
  const seen = (message: unknown) => sockets.push((message as { socket: Socket }).socket);
  subscribe("net.client.socket", seen);
  t.after(() => unsubscribe("net.client.socket", seen));
  receiver.behaviour = (response) => void response.writeHead(200).write("on and on");
  await sendPost({ ...POST, url: new URL(receiver.url) }, t.signal);
  assert.deepEqual(
    sockets.map(({ destroyed }) => destroyed),
    [true],
  );
});

test("CP-867 a name that cannot be looked up is told by the code alone", async (t) => {
  const sent = sendPost({ ...POST, url: new URL("https://hook.example/") }, t.signal, (_, __, done) => {
    done(Object.assign(new Error("getaddrinfo EAI_AGAIN hook.example"), { code: "EAI_AGAIN" }), []);
  });
  await assert.rejects(sent, { message: "it cannot be reached: EAI_AGAIN" });
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { PeerCheck } from "../../lib/hook/peer.ts";
import type { Connection } from "../../lib/http/listen.ts";

test("a peer without an owner is refused; where the system has no table of sockets, every peer passes", async (t) => {
  const ends = { localAddress: "127.0.0.1", localPort: 1, remoteAddress: "127.0.0.1", remotePort: 2 };
  const admits = () => new PeerCheck().admits({ ...ends } as Connection);
  assert.equal(await admits(), false);
  Object.defineProperty(process, "platform", { value: "darwin" });
  t.after(() => Object.defineProperty(process, "platform", { value: "linux" }));
  assert.equal(await admits(), true);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { listenAddress } from "../../lib/server/config.ts";

/** What a name service answers, the bound address, and whether it counts as loopback. */
for (const [addresses, host, loopback] of [
  [["127.0.0.1"], "127.0.0.1", true],
  [["::1", "127.0.1.1"], "127.0.1.1", true],
  [["::1"], "::1", true],
  [["10.0.0.5"], "10.0.0.5", false],
  [["127.0.0.1", "10.0.0.5"], "127.0.0.1", false],
  [["10.0.0.5", "127.0.0.1"], "10.0.0.5", false],
  [["127.0.0.1", "2001:db8::1"], "127.0.0.1", false],
  [["0.0.0.0"], "0.0.0.0", false],
] as const)
  test(`T-61 a name that stands for ${addresses.join(" and ")} is ${loopback ? "" : "not "}loopback`, async () => {
    const asked: string[] = [];
    const found = await listenAddress("some.name:9090", async (name) => {
      asked.push(name);
      return addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
    });
    assert.deepEqual(found, { host, port: 9090, loopback });
    assert.deepEqual(asked, ["some.name"]);
  });

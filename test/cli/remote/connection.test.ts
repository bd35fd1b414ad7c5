import { test } from "node:test";
import { cutConnections, killClients, MOMENTS } from "../../helpers/client-kills.ts";
import { SEED } from "../../helpers/random.ts";

test("connections that are cut at any byte lose and double no line of a log, and start nothing twice", async (t) => {
  const cuts = await cutConnections(t, 3, SEED);
  t.diagnostic(`seed ${SEED}: ${cuts} connections were cut`);
});

test("a client that is killed at any moment has started at most one run, whose record is whole, and leaves nothing", async (t) => {
  await killClients(t, Object.keys(MOMENTS), SEED);
});

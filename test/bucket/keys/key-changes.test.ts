import assert from "node:assert/strict";
import { test } from "node:test";
import { whatWaits } from "../../../lib/bucket/keys/key-changes.ts";

test("the next step of a rotation waits for a build, then for the allocations, of which ten are named", () => {
  const names = Array.from({ length: 11 }, (_, index) => `web@w${index}`);
  const waits = (waiting: string[], isBuilt = true) => whatWaits({ isBuilt, waiting, running: 12 });
  assert.equal(waits(names, false), "no build knows the present ca.crt");
  assert.equal(waits([]), undefined);
  const deploy = "not deployed with the present ca.crt";
  assert.equal(waits(["web@w0"]), `1 of 12 running allocations are ${deploy}: web@w0`);
  assert.equal(waits(names.slice(0, 10)), `10 of 12 running allocations are ${deploy}: ${names.slice(0, 10).join(", ")}`);
  assert.match(waits(names) ?? "", /, web@w9 and 1 more$/);
});

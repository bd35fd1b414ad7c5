import assert from "node:assert/strict";
import { test } from "node:test";
import { shortNames } from "../../lib/core/short-names.ts";

for (const [names, short] of [
  [["10.0.0.1"], "10.0.0.1"],
  [["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.12"], "10.0.0.[1-3,12]"],
  [["10.0.0.9", "10.0.0.10", "10.0.0.8"], "10.0.0.[8-10]"],
  [["10.0.0.1", "10.0.1.1", "10.0.2.1"], "10.0.[0-2].1"],
  [["10.0.0.1", "10.0.0.2", "10.0.1.1", "10.0.1.2"], "10.0.0.[1-2],10.0.1.[1-2]"],
  [["db01.example", "db02.example", "db10.example", "web"], "db[01-02,10].example,web"],
  [["n9", "n10", "n09"], "n[9,09-10]"],
  [["n09", "n10", "n99", "n100"], "n[09-10,99-100]"],
  [["fd00::1", "fd00::2"], "fd00::[1-2]"],
  [["a", "b"], "a,b"],
  [[], ""],
] as const)
  test(`${names.join(" ") || "no names"} in short: ${short || "nothing"}`, () => assert.equal(shortNames(names), short));

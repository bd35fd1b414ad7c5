import assert from "node:assert/strict";
import { test } from "node:test";
import { Redactor } from "../../../lib/core/redact.ts";
import { describeDrift, driftLooks, isForceable, type Promoted } from "../../../lib/operation/reach/tree-drift.ts";
import type { DriftedFile } from "../../../lib/plan/deploy-plan.ts";

const file = (state: DriftedFile["state"], sha256: string | null, path = "a"): DriftedFile => {
  return { path, state, sha256, diff: null };
};

test("force puts back what is changed, missing or a link, and removes no folder, nor a link in the place of the job", () => {
  assert.deepEqual(
    [file("changed", "x"), file("extra", "x"), file("missing", null), file("link", null), file("link", null, "..a")].map(
      isForceable,
    ),
    [true, true, true, true, true],
  );
  assert.deepEqual(
    [file("changed", null), file("extra", null), file("link", null, "."), file("link", null, "..")].map(isForceable),
    [false, false, false, false],
  );
});

test("what was found is told file by file, with the lines of a diff below", () => {
  const files = [file("missing", null), { ...file("changed", "x", "b"), diff: "@@ -1 +1 @@\n-1\n\n+2\n" }];
  assert.deepEqual(describeDrift({ files }), ["  missing a", "  changed b", "    @@ -1 +1 @@", "    -1", "    +2"]);
});

/** What lies on a worker beside what is promoted: files of the job `web` that differ, and their texts. */
interface Found {
  files: object[];
  isUnsettled?: boolean;
  texts?: Record<string, string | undefined>;
}

const KEPT: Record<string, { text: string; isSecret?: boolean }> = {
  one: { text: "1\n" },
  secret: { text: "MQ==", isSecret: true },
  binary: { text: "a\0" },
  long: { text: "x".repeat(64 * 1024 + 1) },
  most: { text: "x".repeat(64 * 1024) },
  word: { text: "hunter-two-2\n" },
};

/** Looks at workers, each with one allocation of `web`; answers how it was found, and what was asked. */
function looker(found: Found, bytes = 1024 * 1024) {
  const redactor = new Redactor();
  redactor.add("hunter-two-2");
  const get = (_sql: string, sum: string) => {
    const { text, isSecret = false } = KEPT[sum] ?? assert.fail(sum);
    return { sealed: isSecret ? 1 : 0, size_bytes: 0, content: Buffer.from(text) };
  };
  const context = { db: { get }, kv: { unseal: (_: string, __: string, text: string) => text }, log: { redactor } };
  const [trees, texts] = [[] as string[][], [] as string[]];
  const effects = {
    async drift(_worker: string, wanted: ReadonlyMap<string, object>) {
      trees.push([...wanted].map(([job, files]) => `${job}: ${Object.keys(files)}`));
      return new Map([["web", { isUnsettled: false, ...found }]]);
    },
    async text(_place: object, path: string) {
      texts.push(path);
      return found.texts && path in found.texts ? found.texts[path] : "2\n";
    },
  };
  const look = driftLooks(context as never, effects as never, bytes);
  const at = async (promotion: object = {}, wanted?: Record<string, string>) => {
    const whole = { hash: "h", files: {}, unfinished: false, ...promotion };
    const [drift] = await look("a", [
      { allocation: { job: "web", worker: "a" }, promotion: whole, ...(wanted && { wanted }) } as unknown as Promoted,
    ]);
    return drift ?? assert.fail();
  };
  return { at, look, trees, texts };
}

const differs = (path: string, state = "changed", hasOtherContent = true) => ({ path, state, sha256: "s", hasOtherContent });

test("an allocation has drifted where a promoted file differs, or what ops put there is not settled; what a job adds is no drift", async () => {
  const rows: [
    what: string,
    found: Found,
    promotion: object,
    wanted: Record<string, string> | undefined,
    seen: [string, boolean, string[]],
  ][] = [
    ["nothing differs", { files: [] }, {}, undefined, ["in_sync", false, []]],
    ["a file was added", { files: [differs("x", "extra")] }, {}, undefined, ["in_sync", false, []]],
    ["files differ", { files: [differs("x"), differs("y", "missing")] }, {}, undefined, ["drifted", false, ["x", "y"]]],
    ["a sync was cut off", { files: [], isUnsettled: true }, {}, undefined, ["drifted", true, []]],
    ["a deploy was cut off", { files: [differs("x")] }, { unfinished: true }, undefined, ["drifted", true, ["x"]]],
    [
      "an added file is in the way",
      { files: [differs("x", "extra"), differs("y", "extra")] },
      {},
      { x: "1" },
      ["drifted", false, ["x"]],
    ],
    [
      "that of a deploy that was cut off",
      { files: [differs("x", "extra")] },
      { unfinished: true },
      { x: "1" },
      ["in_sync", true, []],
    ],
    ["nothing is promoted", { files: [differs("x")] }, { hash: "" }, {}, ["not_promoted", false, []]],
    [
      "something is in the way of the first release",
      { files: [differs("x")] },
      { hash: "" },
      { x: "1" },
      ["drifted", false, ["x"]],
    ],
  ];
  for (const [what, found, promotion, wanted, seen] of rows) {
    const { job, outcome, is_unfinished, files } = await looker(found).at(promotion, wanted);
    assert.deepEqual([job, outcome, is_unfinished, files.map(({ path }) => path)], ["web", ...seen], what);
  }
  const { at, trees } = looker({ files: [] });
  await at({ files: { x: "644:one" } });
  await at({ hash: "" });
  await at({ hash: "", files: {} }, { x: "1" });
  assert.deepEqual(trees, [["web: x"], [], ["web: "]], "only what may be there is asked for");
});

test("a text that differs is shown, masked; no secret, nothing binary and nothing longer than 64 KiB", async () => {
  const diffOf = async (sum: string | undefined, text: string | undefined = "2\n", file = differs("x")) => {
    const { at } = looker({ files: [file], texts: { x: text } });
    const { files } = await at({ files: sum === undefined ? {} : { x: `644:${sum}` } });
    return files[0]?.diff;
  };
  assert.equal(await diffOf("one"), "@@ -1 +1 @@\n-1\n+2\n");
  assert.equal(await diffOf("word", "not hunter-two-2\n"), "@@ -1 +1 @@\n-***\n+not ***\n");
  assert.ok(await diffOf("most"));
  for (const sum of ["secret", "binary", "long", undefined]) assert.equal(await diffOf(sum), null, sum);
  const { files } = await looker({ files: [differs("x")], texts: { x: undefined } }).at({ files: { x: "644:one" } });
  assert.equal(files[0]?.diff, null, "there is no text there");
  assert.equal(await diffOf("one", "2\n", differs("x", "changed", false)), null, "only its mode differs");
});

test("of a worker 20 diffs are shown, and of all workers as many bytes as there is room for", async () => {
  const names = Array.from({ length: 21 }, (_, at) => `f${at}`);
  const files = Object.fromEntries(names.map((name) => [name, "644:one"]));
  const all = looker({ files: names.map((name) => differs(name)) });
  const shown = (drift: { files: { diff: string | null }[] }) => drift.files.filter(({ diff }) => diff !== null).length;
  assert.deepEqual([shown(await all.at({ files })), all.texts.length], [20, 20]);
  assert.equal(shown(await all.at({ files })), 20, "each worker has its own");
  const bytes = Buffer.byteLength("@@ -1 +1 @@\n-1\n+2\n");
  const little = looker({ files: names.slice(0, 4).map((name) => differs(name)) }, 2 * bytes);
  assert.deepEqual([shown(await little.at({ files })), little.texts], [2, ["f0", "f1"]]);
  assert.equal(shown(await little.at({ files })), 0, "other workers have no room either");
  const odd = looker({ files: names.slice(0, 4).map((name) => differs(name)) }, 2 * bytes - 1);
  assert.deepEqual([shown(await odd.at({ files })), odd.texts], [1, ["f0", "f1"]]);
});

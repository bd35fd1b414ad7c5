import assert from "node:assert/strict";
import { test } from "node:test";
import type { Identity } from "../../../lib/auth/guard.ts";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { check } from "../../../lib/core/shape.ts";
import { RUN_KINDS } from "../../../lib/run/protocol.ts";
import type { Context } from "../../../lib/server/context.ts";
import { requireExactly, ruleOf } from "../../../lib/server/people/permission.ts";
import { namesOfList } from "../../../lib/server/routes/catalog.ts";
import { findRun, runIdOf } from "../../../lib/server/routes/runs.ts";
import {
  CURSOR_TEXT,
  LABEL,
  offsetOf,
  PAGE,
  PATH_PAGE,
  pageById,
  pageOf,
  pollMs,
  TIMEOUT,
} from "../../../lib/server/routes/shapes.ts";
import { START_ROUTES } from "../../../lib/server/routes/start-paths.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const WRONG_CURSOR = { code: "invalid_request", message: "cursor: expected the next_cursor of an earlier answer" };
const ID = (digit: number) => `0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e7${digit}`;

test("a page of a list goes on where the list does, and its cursor is a number", () => {
  const list = ["a", "b", "c"];
  assert.deepEqual(pageOf(list, 0, 2), { items: ["a", "b"], next_cursor: "2" });
  assert.deepEqual(pageOf(list, 2, 2), { items: ["c"], next_cursor: null });
  assert.deepEqual(pageOf(list, 1, 2), { items: ["b", "c"], next_cursor: null });
  assert.deepEqual(pageOf(list, 9, 1), { items: [], next_cursor: null });
  assert.deepEqual([undefined, "0", "7", "999999999999"].map(offsetOf), [0, 0, 7, 999_999_999_999]);
  for (const cursor of ["", "x", "-1", "1.5", " 1", "1 ", "1000000000000"])
    assert.throws(() => offsetOf(cursor), WRONG_CURSOR, cursor);
});

test("a page of what has ids begins behind the id of its cursor", async () => {
  const list = [4, 3, 2, 1].map((digit) => ({ id: ID(digit) }));
  const page = (limit: number, cursor?: string) => pageById(async () => list, { limit, cursor });
  assert.deepEqual(await page(4), { items: list, next_cursor: null });
  assert.deepEqual(await page(3), { items: list.slice(0, 3), next_cursor: ID(2) });
  assert.deepEqual(await page(9, ID(3)), { items: list.slice(2), next_cursor: null });
  assert.deepEqual(await page(1, ID(3)), { items: list.slice(2, 3), next_cursor: ID(2) });
  for (const cursor of ["", "x", `${ID(1)}0`]) await assert.rejects(page(1, cursor), WRONG_CURSOR);
});

test("a query of a list is within its bounds, and a poll lasts a minute at most", () => {
  const taken = (shape: Parameters<typeof check>[0], values: unknown[]) => values.filter((value) => check(shape, value).ok);
  assert.deepEqual(taken(PAGE.limit, [0, 1, 500, 501, "5"]), [1, 500]);
  const lengths = (shape: Parameters<typeof check>[0], most: number) =>
    taken(
      shape,
      [0, 1, most, most + 1].map((length) => "x".repeat(length)),
    ).map((text) => String(text).length);
  assert.deepEqual(
    [lengths(PAGE.cursor, 200), lengths(PATH_PAGE.cursor, 1_100), lengths(CURSOR_TEXT, 4_000)],
    [
      [1, 200],
      [1, 1_100],
      [1, 4_000],
    ],
  );
  assert.deepEqual(lengths(LABEL, 200), [1, 200]);
  assert.deepEqual(taken(LABEL, ["a b", "ü", "a\nb", "\u0000a", "a\u007f", "a\t"]), ["a b", "ü"]);
  assert.deepEqual([-5, 0, 1, 59, 60, 61, 1e9].map(pollMs), [0, 0, 1_000, 59_000, 60_000, 60_000, 60_000]);
  assert.deepEqual(taken(TIMEOUT, [-1, 30, 1.5, "1"]), [-1, 30]);
});

test("names stand in lists with commas between them, at most 100 in all", () => {
  assert.deepEqual(namesOfList(), undefined);
  assert.deepEqual(namesOfList(undefined, undefined), undefined);
  assert.deepEqual(namesOfList("a, b", undefined, "c"), ["a", "b", "c"]);
  for (const list of ["", "a,", ",a", "a,,b", " "])
    assert.throws(() => namesOfList("x", list), { code: "invalid_request", message: "expected names with commas between them" });
  const many = (count: number) => Array.from({ length: count }, () => "a").join(",");
  assert.equal(namesOfList(many(99), "b")?.length, 100);
  assert.throws(() => namesOfList(many(100), "b"), { code: "invalid_request", message: "expected at most 100 names" });
});

test("a run is found by its id in any case, and nothing else is the id of a run", (t) => {
  const layout = layoutOf(temporaryFolder(t));
  assert.equal(runIdOf({ run_id: ID(1).toUpperCase() }), ID(1));
  for (const run_id of ["", "x", `${ID(1)}0`, `../${ID(1)}`])
    assert.throws(() => runIdOf({ run_id }), { code: "run_not_found" }, run_id);
  assert.throws(() => runIdOf({}), { code: "run_not_found" });
  assert.throws(() => findRun(layout, { run_id: ID(1) }), { code: "run_not_found" });
});

test("CP-500 each start needs the role of what it does, and a dry run of a deploy or of a change of a key needs less", () => {
  const roles = Object.fromEntries(RUN_KINDS.map((kind) => [kind, ruleOf(START_ROUTES[kind].role).role]));
  assert.deepEqual(
    { ...Object.groupBy(RUN_KINDS, (kind) => roles[kind] ?? "") },
    {
      deploy: RUN_KINDS.filter((kind) => ["push", "rollback", "build", "deploy", "hooks", "run_command"].includes(kind)),
      operate: RUN_KINDS.filter((kind) => /^(health_check|drift|job_\w+|worker_(?!trust)\w+)$/.test(kind)),
      admin: RUN_KINDS.filter((kind) => /^(gc|snapshot_\w+|kv_rekey|ca_rotate|ssh_key_rotate|worker_trust)$/.test(kind)),
    },
  );
  const may = (kind: keyof typeof START_ROUTES, role: string, body: object) => {
    try {
      requireExactly(START_ROUTES[kind].role, { body }, { identity: { role, name: "ada" } as Identity } as Context);
      return true;
    } catch {
      return false;
    }
  };
  for (const kind of ["kv_rekey", "ca_rotate", "ssh_key_rotate"] as const) {
    assert.deepEqual(
      [{ dry_run: true }, {}, { dry_run: false }].map((body) => may(kind, "deploy", body)),
      [true, false, false],
      kind,
    );
    assert.equal(may(kind, "admin", {}), true);
  }
  const bodies = [
    { dry_run: true },
    { dry_run: true, build: false },
    { dry_run: true, build: true },
    { dry_run: true, with_hooks: true },
    {},
  ];
  assert.deepEqual(
    bodies.map((body) => may("deploy", "operate", body)),
    [true, true, false, false, false],
  );
});

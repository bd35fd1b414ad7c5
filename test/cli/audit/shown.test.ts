import assert from "node:assert/strict";
import { test } from "node:test";
import type { AuditLine } from "../../../lib/audit/line.ts";
import { auditWanted, printAudit, printHead, verifyAuditCommand } from "../../../lib/cli/audit/here.ts";
import { parsed, printed } from "../../helpers/printed.ts";

test("the flags of ops audit show say which lines are wanted, 50 unless they say more", () => {
  const flags = { who: "eve", from: "192.0.2.1", run: "r", since: "2026-11", until: "2026-12" };
  assert.deepEqual(auditWanted(parsed()), {
    wanted: { what: undefined, who: undefined, from: undefined, run: undefined, since: undefined, until: undefined },
    limit: 50,
  });
  const given = auditWanted(parsed({ ...flags, what: "start,cancel", limit: "1000000" }));
  assert.deepEqual(given, { wanted: { ...flags, what: ["start", "cancel"] }, limit: 1_000_000 });
  assert.equal(auditWanted(parsed({ limit: "1" })).limit, 1);
  assert.throws(() => auditWanted(parsed({ limit: "0" })), {
    message: '--limit: expected a whole number from 1 to 1000000, found "0"',
  });
  assert.throws(() => auditWanted(parsed({ what: "start,none" })), {
    code: "usage",
    message: /^--what: "none" is none of \w+, /,
  });
});

test("a line of the audit is shown with who, what, where and how it went", async (t) => {
  const line = (rest: object) =>
    ({ n: 7, at: "2026-11-24T00:00:00Z", via: "token", what: "start", ...rest }) as unknown as AuditLine;
  const lines = [
    line({ who: "eve", action: "deploy", kind: "run", reason: "fire", bucket: "0000000012345678", run: "0000000087654321" }),
    line({ via: "server", kind: "backup", outcome: "ok" }),
    line({ from: "192.0.2.1", of: 3, outcome: "failed", code: "usage", error: "wrong", count: 4 }),
    line({}),
    line({ count: 2 }),
  ];
  const { out } = await printed(t, () => printAudit(parsed(), lines));
  assert.deepEqual(
    out
      .trimEnd()
      .split("\n")
      .map((one) =>
        one
          .trim()
          .split(/ {2,}/)
          .filter((_, at) => at > 1),
      ),
    [
      ["who", "what", "action", "bucket", "run", "outcome"],
      ["eve", "start", "deploy BREAK GLASS: fire", "12345678", "87654321", "-"],
      ["the server", "start", "backup", "-", "-", "ok"],
      ["192.0.2.1", "start (of 3)", "-", "-", "-", "4 x failed usage wrong"],
      ["-", "start", "-", "-", "-", "-"],
      ["-", "start", "-", "-", "-", "2 x"],
    ],
  );
  assert.equal((await printed(t, () => printAudit(parsed(), []))).out, "the audit has no such line\n");
  const head = { n: 7, at: "now", hash: "ab", public_key: "key", fingerprint: "fp" };
  const end = await printed(t, () => printHead(parsed(), head));
  assert.equal(end.out, "line         7\nat           now\nhead         ab\npublic key   key\nfingerprint  fp\n");
  assert.deepEqual(JSON.parse((await printed(t, () => printHead(parsed({}, ["json"]), head))).out), head);
});

test("ops audit verify needs files and a key", async () => {
  await assert.rejects(verifyAuditCommand(parsed()), {
    code: "usage",
    message: "no files are named: give a folder of them, or --root",
  });
  const noKey = "no key is named: give --public-key, or --root";
  await assert.rejects(verifyAuditCommand(parsed({}, [], ["x"])), { code: "usage", message: noKey });
});

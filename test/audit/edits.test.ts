import assert from "node:assert/strict";
import { test } from "node:test";
import { AUDIT_EDITS, editAudits } from "../helpers/audit-edits.ts";
import { SEED } from "../helpers/random.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

test("CP-994 every edit of an audit is found at the first line that differs, and not a line more is vouched for", async (t) => {
  const tally = await editAudits(temporaryFolder(t), 6 * AUDIT_EDITS.length, SEED);
  assert.deepEqual(tally, Object.fromEntries(AUDIT_EDITS.map((kind) => [kind, 6])));
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { AUDIT_EDITS, editAudits } from "../helpers/audit-edits.ts";
import { SEED } from "../helpers/random.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

test("CP-994 every edit of an audit is found at the first line that differs, and not a line more is vouched for", async (t) => {
  const tally = await editAudits(temporaryFolder(t), 48, SEED);
  assert.deepEqual(Object.keys(tally).sort(), [...AUDIT_EDITS].sort(), "each kind of edit was tried");
});

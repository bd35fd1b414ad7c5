import assert from "node:assert/strict";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { temporaryName } from "../../../lib/core/files.ts";
import type { Proposal } from "../../../lib/run/approval/proposal.ts";
import { pruneProposals, readProposals, saveProposal } from "../../../lib/run/approval/store.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const AT = "2026-05-04T12:00:00.000Z";

function proposal(ended: Proposal["ended"]): Proposal {
  const by = { name: "ada", token: null };
  const made = { id: uuidV7(), kind: "hooks", params: {}, revision: null, build_seq: 1, hosts: [], reason: null } as const;
  return { ...made, hosts: [], sealed: "sealed", proposed: { at: AT, by }, required: 1, approvals: [], ended };
}

test("a proposal that is made removes what killed writes have left, and those that ended but the newest 100", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  mkdirSync(layout.proposals, { recursive: true });
  const open = proposal(null);
  const ended = Array.from({ length: 102 }, () => proposal({ at: AT, how: "expired", by: null, why: null, run_id: null }));
  for (const one of [open, ...ended]) await saveProposal(layout, one);
  writeFileSync(temporaryName(path.join(layout.proposals, `${open.id}.json`)), '{"id":');
  const left = await pruneProposals(layout);
  const newest = ended
    .map(({ id }) => id)
    .sort()
    .slice(2);
  assert.deepEqual(left.map(({ id }) => id).sort(), [...newest, open.id].sort());
  assert.equal((await readProposals(layout)).length, 101);
  assert.equal(readdirSync(layout.proposals).length, 101);
});

import assert from "node:assert/strict";
import fs, { mkdirSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { temporaryName } from "../../../lib/core/files.ts";
import type { Proposal } from "../../../lib/run/approval/proposal.ts";
import {
  openedParams,
  pruneProposals,
  readProposal,
  readProposals,
  saveProposal,
  sealedParams,
} from "../../../lib/run/approval/store.ts";
import { failing } from "../../helpers/faults.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeBucket } from "../../helpers/workspace.ts";

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

test("a proposal is read as it was stored; one that is damaged, too large, another's or a link is none", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  assert.deepEqual(await readProposals(layout), []);
  const [one, other] = [proposal(null), proposal(null)];
  for (const each of [one, other]) await saveProposal(layout, each);
  const file = path.join(layout.proposals, `${one.id}.json`);
  assert.equal(readFileSync(file, "utf8"), `${JSON.stringify(one, null, 2)}\n`);
  assert.deepEqual(
    [layout.proposals, file].map((place) => statSync(place).mode & 0o777),
    [0o700, 0o600],
  );
  assert.deepEqual(await readProposal(layout, one.id), one);
  writeFileSync(path.join(layout.proposals, "no-id.json"), JSON.stringify(one));
  const newestFirst = [one, other].sort((a, b) => (a.id < b.id ? 1 : -1));
  assert.deepEqual(await readProposals(layout), newestFirst);
  for (const id of ["../x", "", uuidV7()]) assert.equal(await readProposal(layout, id), undefined, id);
  for (const text of [
    "",
    "{",
    JSON.stringify({ ...one, kind: "nothing" }),
    JSON.stringify(other),
    `${" ".repeat(4 * 1024 * 1024)}{}`,
  ]) {
    writeFileSync(file, text);
    assert.equal(await readProposal(layout, one.id), undefined, text.slice(0, 40));
  }
  const room = 4 * 1024 * 1024 - JSON.stringify(one).length;
  writeFileSync(file, `${JSON.stringify(one)}${" ".repeat(room)}`);
  assert.deepEqual(await readProposal(layout, one.id), one, "4 MiB are read");
  rmSync(file);
  symlinkSync("/dev/null", file);
  assert.equal(await readProposal(layout, one.id), undefined);
  rmSync(file);
  failing(t, fs.promises, "open", "EMFILE");
  await assert.rejects(readProposal(layout, other.id), { code: "EMFILE" });
});

test("what is proposed is sealed with the key of the bucket, for this proposal alone", async (t) => {
  const { layout } = await makeBucket(t);
  const [one, other] = [proposal(null), proposal(null)];
  const params = { command: "echo secret" };
  const sealed = await sealedParams(layout, one.id, params);
  assert.doesNotMatch(sealed, /secret/);
  assert.deepEqual(await openedParams(layout, { ...one, sealed }), params);
  for (const wrong of [
    { ...other, sealed },
    { ...one, sealed: null },
  ])
    await assert.rejects(openedParams(layout, wrong), { code: "failed" });
});

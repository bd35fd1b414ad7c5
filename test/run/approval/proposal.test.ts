import assert from "node:assert/strict";
import { test } from "node:test";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import {
  APPROVAL_MS,
  aged,
  approved,
  closed,
  countedApprovals,
  expiryOf,
  lackingApproval,
  needsApproval,
  type Person,
  type Proposal,
  requireApproved,
  used,
} from "../../../lib/run/approval/proposal.ts";
import { RUN_KINDS } from "../../../lib/run/protocol.ts";
import { seeded } from "../../helpers/random.ts";

const START = Date.parse("2026-05-04T12:00:00.000Z");
const ADA: Person = { name: "ada", token: "a1" };
const BEN: Person = { name: "ben", token: "b1" };
const EVA: Person = { name: "eva", token: "e1" };
const everybody = () => true;

function proposal(more: Partial<Proposal> = {}): Proposal {
  return {
    id: uuidV7(),
    kind: "run_command",
    params: { command: "uptime" },
    revision: null,
    build_seq: 1,
    hosts: ["10.0.0.1"],
    reason: null,
    sealed: "sealed",
    proposed: { at: new Date(START).toISOString(), by: ADA },
    required: 1,
    approvals: [],
    ended: null,
    ...more,
  };
}

const use = (one: Proposal, required: number, now: number, isEntitled: (person: Person) => boolean = everybody) =>
  used(one, { by: "ada", runId: "the-run", required, now, isEntitled });

test("CP-521 deploys, rollbacks, hooks and commands need approval, and of dry runs those that run hooks", () => {
  const needing = RUN_KINDS.filter((kind) => needsApproval(kind, {}));
  assert.deepEqual(needing, ["rollback", "deploy", "hooks", "run_command"]);
  assert.equal(needsApproval("deploy", { dry_run: true }), false);
  assert.equal(needsApproval("deploy", { dry_run: true, build: true }), false);
  assert.equal(needsApproval("deploy", { dry_run: true, with_hooks: true }), true);
  assert.equal(needsApproval("hooks", { dry_run: true }), true, "only a deploy has dry runs");
});

test("CP-524 nobody approves what they have proposed, by whichever token", () => {
  const again = { name: "ADA", token: "another" };
  for (const by of [ADA, again]) assert.throws(() => approved(proposal(), by, START), { code: "forbidden" });
  const forged = proposal({ approvals: [{ at: new Date(START).toISOString(), by: again }] });
  assert.throws(() => use(forged, 1, START), { code: "approval_required" });
});

test("CP-524 a person counts once, with two tokens and two approvals", () => {
  const twice = approved(approved(proposal(), BEN, START), { name: "Ben", token: "b2" }, START + 1);
  assert.equal(twice.approvals.length, 1);
  assert.throws(() => use(twice, 2, START + 2), {
    code: "approval_required",
    message: /lacks 1 of 2 approvals: somebody other than ada and Ben types `ops approve \w{8}`$/,
    details: { required: 2, given: 1, missing: 1, proposal: twice.id },
  });
  assert.equal(use(approved(twice, EVA, START + 2), 2, START + 3).ended?.how, "used");
});

test("CP-525 an approval holds for a day, and a proposal for a day after the last that was done for it", () => {
  const once = approved(proposal(), BEN, START + 1_000);
  assert.equal(use(once, 1, START + 1_000 + APPROVAL_MS - 1).ended?.how, "used");
  assert.throws(() => use(once, 1, START + 1_000 + APPROVAL_MS), {
    code: "approval_required",
    message: /has expired; propose it anew$/,
  });
  const both = approved(once, EVA, START + 5_000);
  const standing = { now: START + 1_000 + APPROVAL_MS, isEntitled: everybody };
  assert.deepEqual(
    countedApprovals(both, standing).map(({ by }) => by.name),
    ["eva"],
    "the first has ended, the proposal has not",
  );
  assert.throws(() => approved(proposal(), BEN, START + APPROVAL_MS), { code: "proposal_ended" });
  assert.equal(aged(proposal(), START + APPROVAL_MS).ended?.at, new Date(START + APPROVAL_MS).toISOString());
});

test("CP-526 an approval of somebody who may not start such a run any more does not count", () => {
  const once = approved(proposal(), BEN, START);
  assert.throws(() => use(once, 1, START, ({ token }) => token !== "b1"), { code: "approval_required" });
});

test("CP-523 a proposal is used once, and what has ended stays as it ended, without its secrets", () => {
  const once = approved(proposal(), BEN, START);
  const told = { by: "eva", why: "no", now: START };
  const ends = [
    use(once, 1, START),
    closed(once, "rejected", told),
    closed(once, "withdrawn", told),
    closed(once, "stale", told),
  ];
  for (const end of ends) {
    assert.equal(end.sealed, null);
    assert.throws(() => use(end, 1, START), { code: "approval_required" }, end.ended?.how);
    assert.throws(() => use(end, 0, START), { code: "approval_required" }, "also where none is asked for");
    assert.throws(() => approved(end, EVA, START), { code: "proposal_ended" });
    assert.throws(() => closed(end, "rejected", told), { code: "proposal_ended" });
    assert.equal(aged(end, START + 10 * APPROVAL_MS), end);
  }
  assert.deepEqual(ends[0]?.ended, { at: new Date(START).toISOString(), how: "used", by: "ada", why: null, run_id: "the-run" });
});

/** What a model remembers of one proposal: all that anybody did, in the order of time. */
interface Model {
  proposer: string;
  proposedAt: number;
  /** By name in lower case: the newest approval. */
  approvals: Map<string, { at: number; token: string }>;
  isOver: boolean;
}

test("CP-523 CP-524 CP-525 CP-526 whatever people do, in whichever order, a run starts only with enough approvals, and once", () => {
  const random = seeded();
  const pick = <T>(all: readonly T[]) => all[Math.floor(random() * all.length)] as T;
  const people = ["ada", "ben", "eva"].flatMap((name) =>
    [1, 2].map((n) => ({ name: pick([name, name.toUpperCase()]), token: `${name}${n}` })),
  );
  let starts = 0;
  for (let round = 0; round < 3_000; round++) {
    let now = START;
    const proposer = pick(people);
    let one = proposal({ proposed: { at: new Date(now).toISOString(), by: proposer } });
    const model: Model = { proposer: proposer.name.toLowerCase(), proposedAt: now, approvals: new Map(), isOver: false };
    const revoked = new Set<string>();
    const isEntitled = ({ token }: Person) => !revoked.has(token ?? "");
    const isOver = () =>
      model.isOver || now >= Math.max(model.proposedAt, ...[...model.approvals.values()].map(({ at }) => at)) + APPROVAL_MS;
    const holding = () =>
      [...model.approvals.values()].filter(({ at, token }) => now - at < APPROVAL_MS && !revoked.has(token)).length;
    for (let step = 0; step < 12; step++) {
      const by = pick(people);
      const act = pick(["approve", "approve", "approve", "use", "use", "later", "revoke", "admit", "reject"] as const);
      if (act === "later") now += pick([1, 3_600_000, APPROVAL_MS / 2, APPROVAL_MS - 1, APPROVAL_MS]);
      if (act === "revoke") revoked.add(by.token);
      if (act === "admit") revoked.delete(by.token);
      if (act === "approve") {
        const mayApprove = !isOver() && by.name.toLowerCase() !== model.proposer;
        if (!mayApprove) assert.throws(() => approved(one, by, now));
        else {
          one = approved(one, by, now);
          model.approvals.set(by.name.toLowerCase(), { at: now, token: by.token });
        }
      }
      if (act === "reject" && random() < 0.2) {
        if (isOver()) assert.throws(() => closed(one, "rejected", { by: by.name, why: null, now }), { code: "proposal_ended" });
        else one = closed(one, "rejected", { by: by.name, why: null, now });
        model.isOver = true;
      }
      if (act === "use") {
        const required = pick([1, 2]);
        const mayStart = !isOver() && holding() >= required;
        if (!mayStart) assert.throws(() => requireApproved(one, required, { now, isEntitled }), { code: "approval_required" });
        else {
          one = used(one, { by: by.name, runId: `run ${round}`, required, now, isEntitled });
          model.isOver = true;
          starts++;
        }
      }
      assert.equal(aged(one, now).ended !== null, isOver(), `round ${round}, step ${step}: ${act}`);
      if (!one.ended) assert.ok(expiryOf(one) >= model.proposedAt + APPROVAL_MS);
    }
  }
  assert.ok(starts > 100, `only ${starts} starts: the series tries nothing`);
});

test("CP-524 what is missing is told in words: whose approval, of whom, and how to ask for it", () => {
  const thrown = (act: () => unknown) => {
    try {
      act();
    } catch (error) {
      const { code, message, details } = error as { code: string; message: string; details: unknown };
      return { code, message, details };
    }
    return undefined;
  };
  const one = proposal({ id: "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70" });
  const missing = { required: 1, given: 0, missing: 1, proposal: one.id };
  assert.deepEqual(
    thrown(() => use(one, 1, START)),
    {
      code: "approval_required",
      message: "proposal 8a3c5e70 lacks 1 of 1 approval: somebody other than ada types `ops approve 8a3c5e70`",
      details: missing,
    },
  );
  assert.equal(thrown(() => approved(one, ADA, START))?.message, "ada has proposed this: somebody else has to approve it");
  const ends = [
    [closed(one, "rejected", { by: "eva", why: "not now", now: START }), "was rejected by eva: not now"],
    [closed(one, "withdrawn", { by: "ada", why: null, now: START }), "was withdrawn by ada"],
    [
      closed(one, "stale", { by: null, why: "the revision is another one", now: START }),
      "does not hold any more: the revision is another one",
    ],
    [use(approved(one, BEN, START), 1, START), "was used by run the-run"],
    [aged(one, START + APPROVAL_MS), "has expired"],
  ] as const;
  for (const [end, words] of ends) {
    assert.equal(thrown(() => approved(end, EVA, START))?.message, `proposal 8a3c5e70 ${words}`);
    assert.deepEqual(
      thrown(() => use(end, 1, START)),
      { code: "approval_required", message: `proposal 8a3c5e70 ${words}; propose it anew`, details: missing },
    );
  }
  assert.deepEqual(ends[0][0].ended, { at: one.proposed.at, how: "rejected", by: "eva", why: "not now", run_id: null });
  const { code, message, details } = lackingApproval("deploy", 1);
  assert.deepEqual(
    [code, message, details],
    [
      "approval_required",
      "deploy in this bucket needs the approval of another person: `ops propose deploy` asks for it",
      { ...missing, proposal: null },
    ],
  );
  const two = "rollback in this bucket needs the approval of 2 other people: `ops propose rollback --plan p` asks for it";
  assert.equal(lackingApproval("rollback", 2, "p").message, two);
  assert.equal(expiryOf(approved(one, BEN, START + 5)), START + 5 + 24 * 3_600_000);
});

import type { CommandRow, Flag, Operand } from "../base/flags.ts";
import { STARTING } from "../base/start-flags.ts";
import { proposeCommand } from "./run-command.ts";
// The commands of the runs come first: what is proposed is named by them.
import "./runs.ts";

const ONE_PROPOSAL: Operand = { name: "proposal", help: "Its id, or the beginning or end of it" };
const REASON: Flag = { name: "reason", value: "TEXT", help: "Why: one line of at most 200 characters" };

type ProposalWork = `${"show" | "start" | "approve" | "reject" | "withdraw"}Proposal` | "listProposals";

/** What a command does on a server; loaded when it is called. */
function onProposals(work: ProposalWork): NonNullable<CommandRow["remote"]> {
  return async (input, target) => (await import("../remote/proposals.ts"))[work](input, target);
}

const LIST_PROPOSALS: CommandRow = {
  name: "proposals list",
  summary: "Show what is proposed in the bucket and waits for approval or for its start, newest first",
  flags: [{ name: "all", help: "Also those that have ended" }],
  remote: onProposals("listProposals"),
};

/** Commands about what others have to approve. */
export const APPROVAL_COMMANDS: readonly CommandRow[] = [
  proposeCommand("deploy", [REASON]),
  proposeCommand("run_command", [REASON]),
  proposeCommand("hooks", [REASON]),
  {
    name: "propose rollback",
    summary: "Ask others to approve: roll the source back to a revision and build it",
    operands: [
      { name: "revision", help: "Its id, or the beginning or end of it (default: the last successful one)", optional: true },
    ],
    flags: [REASON],
    remote: async (input, target) => (await import("../remote/proposals.ts")).proposeRollback(input, target),
  },
  { ...LIST_PROPOSALS, name: "proposals" },
  LIST_PROPOSALS,
  {
    name: "proposals show",
    summary: "Show a proposal: what would run, on which workers, who approved it, and what it lacks",
    operands: [ONE_PROPOSAL],
    remote: onProposals("showProposal"),
  },
  {
    name: "proposals start",
    summary: "Start what a proposal says, once it is approved",
    operands: [ONE_PROPOSAL],
    flags: STARTING,
    remote: onProposals("startProposal"),
  },
  {
    name: "approve",
    summary: "Approve what somebody else has proposed, for a day",
    operands: [ONE_PROPOSAL],
    remote: onProposals("approveProposal"),
  },
  {
    name: "reject",
    summary: "Reject a proposal, which ends it",
    operands: [ONE_PROPOSAL],
    flags: [{ ...REASON, help: `${REASON.help} (needed)` }],
    remote: onProposals("rejectProposal"),
  },
  {
    name: "withdraw",
    summary: "Withdraw a proposal of one's own, or as an admin any other",
    operands: [ONE_PROPOSAL],
    remote: onProposals("withdrawProposal"),
  },
];

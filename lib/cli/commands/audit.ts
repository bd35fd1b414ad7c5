import type { CommandRow, Flag } from "../base/flags.ts";

const AUDIT_ROOT: Flag = { name: "root", value: "DIR", help: "Read the audit below this root of a server, here" };
const LINE_FILTERS: readonly Flag[] = [
  { name: "what", value: "A,B", help: "Only these kinds of lines, such as start, cancel, sign_in or refused" },
  { name: "who", value: "NAME", help: "Only lines of this name" },
  { name: "from", value: "ADDRESS", help: "Only lines from this address" },
  { name: "run", value: "ID", help: "Only lines about this run, by its whole id" },
  { name: "since", value: "TIME", help: "Only from this time on, UTC: 2026-11-26T10:00:00Z, a day or a month" },
  { name: "until", value: "TIME", help: "Only before this time" },
];

/** Commands about the audit of a server. */
export const AUDIT_COMMANDS: readonly CommandRow[] = [
  {
    name: "audit show",
    summary: "Show what was done on a server, by whom and how it went, newest first",
    flags: [AUDIT_ROOT, ...LINE_FILTERS, { name: "limit", value: "N", help: "How many lines at most (default 50)" }],
    run: async (input) => (await import("../audit/here.ts")).showAuditHere(input),
    remote: async (input, target) => (await import("../audit/remote.ts")).showAudit(input, target),
  },
  {
    name: "audit head",
    summary: "Print where the audit of a server ends, and the public key that verifies it; note both elsewhere",
    flags: [AUDIT_ROOT],
    run: async (input) => (await import("../audit/here.ts")).showHeadHere(input),
    remote: async (input, target) => (await import("../audit/remote.ts")).showHead(input, target),
  },
  {
    name: "audit export",
    summary: "Copy the files of the audit of a server, byte for byte, into a folder",
    operands: [{ name: "folder", help: "The folder, made if it is missing" }],
    flags: [AUDIT_ROOT],
    run: async (input) => (await import("../audit/here.ts")).exportAuditHere(input),
    remote: async (input, target) => (await import("../audit/remote.ts")).exportAudit(input, target),
  },
  {
    name: "audit verify",
    summary:
      "Say whether lines of an audit were changed, removed, added or reordered, and up to which the key vouches; needs no server",
    operands: [{ name: "place", help: "A folder with the files, or one file (default: those of --root)", optional: true }],
    flags: [
      { ...AUDIT_ROOT, help: "The root of a server here: its files, and the public part of its key" },
      { name: "public-key", value: "KEY", help: "The public key that the server printed, or a file with it" },
      {
        name: "head",
        value: "HASH",
        help: "The hash of a line that must be there, as it was noted: shows an end that was cut off",
      },
      { name: "from", value: "HASH", help: "The hash of the line before the first one, where earlier files are kept elsewhere" },
    ],
    run: async (input) => (await import("../audit/here.ts")).verifyAuditCommand(input),
  },
];

import type { CommandRow, Flag, Parsed, Target } from "../base/flags.ts";

const STOPPED_ROOT: Flag = {
  name: "root",
  value: "DIR",
  help: "Work in the folder of a server that is stopped, as the owner of the folder",
};
/** Those of lib/auth/access-file.ts, which only some commands load. */
const GIVEN_ROLES = ["read", "operate", "deploy", "admin"];
type Work = keyof Pick<typeof import("../state/tokens.ts"), "createToken" | "listTokens" | "revokeToken">;

/** The same over HTTP and in the folder of a server. */
function ofTokens(name: string, work: Work): Required<Pick<CommandRow, "name" | "run" | "remote">> {
  return {
    name,
    run: async (input: Parsed) => {
      const tokens = await import("../state/tokens.ts");
      const { betweenLines } = await import("../audit/audited.ts");
      // A list changes nothing.
      const isTold = work !== "listTokens";
      return await tokens.inRoot(tokens[work], input, (root, carryOut) =>
        isTold ? betweenLines({ root }, { name }, { input }, carryOut) : carryOut(),
      );
    },
    remote: async (input: Parsed, target: Target) => {
      const tokens = await import("../state/tokens.ts");
      return await tokens[work](await (await import("../remote/people.ts")).tokensOn(target), input);
    },
  };
}

const LIST_TOKENS: CommandRow = {
  ...ofTokens("tokens list", "listTokens"),
  summary: "Show the tokens of a server: role, buckets, end, last use",
  flags: [STOPPED_ROOT],
};
const LIST_SESSIONS: CommandRow = {
  name: "sessions list",
  summary: "Show the sessions with a server: one's own, or all for an admin of all buckets",
  remote: async (input, target) => (await import("../remote/people.ts")).listSessions(input, target),
};

/** Who may do what on a server. */
export const PEOPLE_COMMANDS: readonly CommandRow[] = [
  {
    name: "whoami",
    summary: "Show who one is on a server, and what one may do there",
    remote: async (input, target) => (await import("../remote/people.ts")).whoami(input, target),
  },
  { ...LIST_TOKENS, name: "tokens" },
  LIST_TOKENS,
  {
    ...ofTokens("tokens create", "createToken"),
    summary: "Make a token for a person or a program; prints it once",
    operands: [{ name: "name", help: "Whose it is: letters, digits and ._@-" }],
    flags: [
      { name: "role", value: "ROLE", choices: GIVEN_ROLES, help: `What it may do: ${GIVEN_ROLES.join(", ")} (default read)` },
      { name: "bucket", value: "NAMES", help: "Only for these buckets, with commas between them (default: all)" },
      { name: "expires", value: "TIME", help: "How long it is valid, such as 90d or 12h (default: until it is revoked)" },
      { name: "totp", help: "With a TOTP secret of its own, shown once, in place of the server's" },
      { name: "no-totp", help: "Never asked for a TOTP code; only with the role read, for programs such as Prometheus" },
      STOPPED_ROOT,
    ],
  },
  {
    ...ofTokens("tokens revoke", "revokeToken"),
    summary: "Take a token out of use; what goes on with it ends, its runs go on",
    operands: [{ name: "token", help: "Its name or id" }],
    flags: [STOPPED_ROOT],
  },
  { ...LIST_SESSIONS, name: "sessions" },
  LIST_SESSIONS,
  {
    name: "sessions end",
    summary: "End a session with a server",
    operands: [{ name: "session", help: "The id, or its beginning or end" }],
    remote: async (input, target) => (await import("../remote/people.ts")).endSession(input, target),
  },
];

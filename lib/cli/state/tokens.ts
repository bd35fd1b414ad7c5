import { randomUUID } from "node:crypto";
import { lstat } from "node:fs/promises";
import { userInfo } from "node:os";
import path from "node:path";
import type { AccessToken } from "../../auth/access-file.ts";
import { acquireLock } from "../../bucket/base/lock.ts";
import { accessFile, bucketIds, findBucket, refuseUsedRoot, serverLock } from "../../bucket/source/root.ts";
import { parseDurationMs } from "../../codec/config/number.ts";
import { asciiQr, qrCode, terminalQr } from "../../codec/qr.ts";
import { Failure, hasErrno } from "../../core/errors.ts";
import { makePrivateFolder } from "../../core/files.ts";
import { quote } from "../../core/shape.ts";
import { EXIT, flagList, type Parsed, wantsJson } from "../base/flags.ts";
import { factLines, printAnswer, printJson, printList, shownTime, toStderr, toStdout } from "../base/terminal.ts";

/** A token as lists show it. */
type ShownToken = Omit<AccessToken, "sha256" | "totp_secret"> & { expired: boolean };
/** A new token with what is shown once. */
type MadeToken = ShownToken & { token: string; totp_secret: string | null; totp_uri: string | null };
/** What a new token is asked for with: the body of the route that makes one. */
interface WantedToken {
  name: string;
  role?: string | undefined;
  buckets?: string[] | undefined;
  lifetime_s?: number | undefined;
  totp?: AccessToken["totp"] | undefined;
}

/** The tokens of a server, over HTTP or in its folder. */
export interface TokenBook {
  all(): Promise<ShownToken[]>;
  make(wanted: WantedToken): Promise<MadeToken>;
  revoke(given: string): Promise<void>;
  /** The id of the bucket that a name, `project/name` or id means. */
  bucketNamed(given: string): Promise<string>;
}

/** `ops tokens create <name>`: prints the token alone to stdout, all else to stderr. */
export async function createToken(book: TokenBook, input: Parsed): Promise<number> {
  const { values, switches, operands } = input;
  if (switches.has("totp") && switches.has("no-totp")) throw new Failure("usage", "give --totp or --no-totp, not both");
  const buckets: string[] = [];
  for (const given of flagList(input, "bucket") ?? []) buckets.push(await book.bucketNamed(given));
  const made = await book.make({
    name: operands[0] ?? "",
    role: values.get("role"),
    buckets: buckets.length > 0 ? [...new Set(buckets)] : undefined,
    lifetime_s: lifetimeOf(values.get("expires")),
    totp: switches.has("totp") ? "own" : switches.has("no-totp") ? "none" : undefined,
  });
  if (wantsJson(input)) printJson(made);
  else {
    toStdout(`${made.token}\n`);
    toStderr(`${factLines(factsOf(made))}${totpText(made)}The token is shown only now: keep it, or hand it over, at once.\n`);
  }
  return EXIT.done;
}

/** Seconds of `90d`, `12h`, `1h30m`; undefined where nothing is given. */
function lifetimeOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const [, days] = /^(\d{1,4})d$/.exec(text) ?? [];
  const seconds = days === undefined ? (parseDurationMs(text) ?? 0) / 1000 : Number(days) * 86_400;
  if (seconds >= 1 && Number.isInteger(seconds)) return seconds;
  throw new Failure("usage", `--expires ${quote(text)}: expected a time from now, such as 90d, 12h or 1h30m`);
}

function factsOf({ name, role, buckets, expires_at, totp }: ShownToken) {
  const factor = { common: "as the server asks for it", own: "of its own, below", none: "none" }[totp];
  return [
    ["name", name],
    ["role", role],
    ["buckets", buckets?.join(", ") ?? "all"],
    ["expires", expires_at ?? "never"],
    ["totp", factor],
  ] as const;
}

function totpText({ totp_secret, totp_uri }: MadeToken): string {
  if (totp_secret === null || totp_uri === null) return "";
  const code = qrCode(totp_uri);
  const picture = process.stderr.isTTY ? terminalQr(code, !process.env.NO_COLOR) : asciiQr(code);
  return `${factLines([
    ["secret", totp_secret],
    ["uri", totp_uri],
  ])}${picture}`;
}

/** `ops tokens list`. */
export async function listTokens(book: TokenBook, input: Parsed): Promise<number> {
  const none = "there is no token but the server's own; make one with `ops tokens create NAME`";
  return printList(input, await book.all(), none, {
    name: ({ name }) => name,
    role: ({ role }) => role,
    buckets: ({ buckets }) => buckets?.join(",") ?? "all",
    expires: ({ expires_at: at, expired }) => (at === null ? "never" : `${shownTime(at)}${expired ? " (over)" : ""}`),
    "last used": ({ last_used_on }) => last_used_on ?? "never",
    totp: ({ totp }) => totp,
    "made by": ({ created_by }) => created_by,
  });
}

/** `ops tokens revoke <name>`. */
export async function revokeToken(book: TokenBook, input: Parsed): Promise<number> {
  const given = input.operands[0] ?? "";
  await book.revoke(given);
  return printAnswer(input, { token: given }, `the token ${quote(given)} is revoked; what it has started goes on\n`);
}

type TokenCommand = (book: TokenBook, input: Parsed) => Promise<number>;

/**
 * Carries a command out in the folder of a server that does not run: whoever owns the folder may. `audited` does the work
 * between two lines of the audit of that server, as a request to it would be. Throws `usage` for another user, `failed`
 * while a server has the root, and what `audited` throws.
 */
export async function inRoot(
  command: TokenCommand,
  input: Parsed,
  audited: (root: string, work: () => Promise<number>) => Promise<number>,
): Promise<number> {
  const given = input.values.get("root");
  if (given === undefined)
    throw new Failure(
      "usage",
      "no server is named: give --server or OPS_SERVER, or --root with the folder of one that is stopped",
    );
  const root = path.resolve(given);
  await refuseUsedRoot(root);
  await requireOwner(root);
  const place = serverLock(root);
  await makePrivateFolder(place.data);
  const lock = acquireLock(place, randomUUID(), "tokens").catch((error: unknown) => {
    if (!(error instanceof Failure && error.code === "bucket_busy")) throw error;
    throw new Failure("failed", `Cannot change the tokens in ${root}: a server has this root; use --server, or stop it first`);
  });
  await using _ = await lock;
  return await audited(root, async () => await command(await bookOf(root), input));
}

/** A file of another owner could not be read by the server. */
async function requireOwner(root: string): Promise<void> {
  const found = await lstat(root).catch((error: unknown) => {
    if (hasErrno(error, "ENOENT"))
      throw new Failure("usage", `there is no root ${root}: start the server once, or make the folder`);
    throw error;
  });
  const { uid, username } = userInfo();
  if (found.uid === uid) return;
  const message = `the root ${root} belongs to the user ${found.uid}, not to ${username}: run this as its owner (sudo -u '#${found.uid}' …)`;
  throw new Failure("usage", message);
}

/** The tokens in the folder of a server. */
async function bookOf(root: string): Promise<TokenBook> {
  const { AccessStore } = await import("../../auth/access-store.ts");
  const { NEW_TOKEN, newToken, shownToken } = await import("../../server/people/tokens.ts");
  const { check } = await import("../../core/shape.ts");
  const store = await AccessStore.open(accessFile(root));
  return {
    all: async () => store.tokens.map((token) => shownToken(token, store)),
    async make(wanted) {
      const checked = check(NEW_TOKEN, wanted);
      const [problem] = checked.ok ? [] : checked.problems;
      if (!checked.ok) throw new Failure("usage", `${problem?.path}: ${problem?.message}`);
      return await newToken(store, root, { ...checked.value, created_by: `${userInfo().username} on the command line` });
    },
    revoke: async (given) => void (await store.revoke(given)),
    async bucketNamed(given) {
      const buckets = (await bucketIds(root)).map((id) => findBucket(root, id));
      const isMeant = ({ id, project, name }: (typeof buckets)[number]) =>
        [id, name, `${project}/${name}`].includes(given) || id === given.toLowerCase();
      const found = buckets.filter(isMeant);
      if (found.length === 1 && found[0]) return found[0].id;
      const why = found.length === 0 ? "there is no such bucket" : "several buckets have this name: give project/name or the id";
      throw new Failure("usage", `--bucket ${quote(given)}: ${why}`);
    },
  };
}

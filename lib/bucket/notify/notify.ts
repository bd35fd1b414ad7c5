import { isLoopback } from "../../codec/address.ts";
import { Failure, messageOf } from "../../core/errors.ts";
import { decodeUtf8 } from "../../core/plain-text.ts";
import {
  boolean,
  check,
  described,
  type Infer,
  integer,
  isObject,
  join,
  list,
  object,
  oneOf,
  optional,
  otherwise,
  parsedJson,
  quote,
  type Report,
  record,
  refined,
  type Shape,
  string,
  withDefault,
} from "../../core/shape.ts";
import type { Database } from "../base/database.ts";
import type { Layout } from "../base/layout.ts";
import { fileName, NAME, NAME_RULE, SCHEMA_KEY, timezone } from "../base/names.ts";
import type { FileProblems, Problems } from "../base/problems.ts";
import { parseSourceJson, readSource, relative } from "../source/source-file.ts";
import { READY_BODIES, renderBody, SAMPLE } from "./body.ts";

/** What messages tell of; `recovered` is the end of an incident. */
export const MESSAGE_EVENTS = [
  "run_failed",
  "gate_failed",
  "snapshot_failed",
  "allocation_unhealthy",
  "worker_unreachable",
  "drift",
  "certificate_ends",
  "schedule_missed",
  "approval_wanted",
  "break_glass_used",
  "recovered",
] as const;
/** One of {@link MESSAGE_EVENTS}. */
export type MessageEvent = (typeof MESSAGE_EVENTS)[number];

/** How many days before its end a certificate is told of where nothing else is said, and at most. */
export const CERTIFICATE_DAYS = { usual: 14, most: 90 } as const;

/** The days of the week as `Date` counts them. */
const DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"] as const;
/** Of one file. */
const MOST = { targets: 50, rules: 100, quiet: 20, headers: 20, arguments: 50, text: 2_000 };
/** What HTTP and ops decide by themselves. */
const RESERVED_HEADERS =
  /^(?:host|connection|content-length|transfer-encoding|te|trailer|upgrade|expect|keep-alive|proxy-.*|ops-.*)$/i;

const TARGET_NAME = { key: NAME, means: NAME_RULE };
const PLAIN = string({ max: MOST.text, pattern: /^[^\p{Cc}]*$/u, means: "one line of text" });
const SECRET = object({
  secret: described(
    string({ min: 1, max: 253, pattern: /^[^\p{C}]+$/u, means: "one line of text" }),
    "The key of a secret that `ops notify set-secret <key>` has stored",
  ),
});
/** A text, or the secret that holds it. */
export type TextOrSecret = string | Infer<typeof SECRET>;
const TEXT_OR_SECRET: Shape<TextOrSecret> = {
  schema: { anyOf: [PLAIN.schema, SECRET.schema] },
  check: (value, path, report) => (isObject(value) ? SECRET : PLAIN).check(value, path, report),
};

const TARGET_FIELDS = {
  webhook: described(optional(TEXT_OR_SECRET), "An address with https://, or with http:// on the server's own host"),
  command: described(
    optional(list(PLAIN, { min: 1, max: MOST.arguments })),
    "An executable of the server's host with its arguments; it reads the message from standard input",
  ),
  headers: described(withDefault(record(TEXT_OR_SECRET), {}), "More headers of the request"),
  sign: described(optional(SECRET), "The key of the signature in the header Ops-Signature"),
  body: described(
    withDefault(bodyName(), "json"),
    `One of ${READY_BODIES.join(", ")}, or a template beside notify.json: <name>.tpl`,
  ),
  private: described(withDefault(boolean(), false), "The address may be one of a private network, or of the server's own host"),
};

const RULE = object({
  events: described(
    withDefault(list(oneOf(...MESSAGE_EVENTS), { min: 1 }), [...MESSAGE_EVENTS]),
    "What is told (default: everything). run_failed tells of gate_failed and snapshot_failed, too",
  ),
  to: described(list(string(), { min: 1, max: MOST.targets }), "Names of targets"),
  after: described(
    withDefault(integer({ min: 1, max: 100 }), 1),
    "Tell of an unhealthy allocation or an unreachable worker once so many checks have found it",
  ),
  days: described(
    withDefault(integer({ min: 1, max: CERTIFICATE_DAYS.most }), CERTIFICATE_DAYS.usual),
    "Tell of a certificate so many days before its end",
  ),
});

const QUIET_FIELDS = {
  from: described(clock(), "On the clocks of the timezone, such as 22:00"),
  to: described(clock(), "Its end; on the next day where it is before `from`"),
  days: described(withDefault(list(oneOf(...DAYS), { min: 1 }), [...DAYS]), "The days on which it begins (default: all)"),
  timezone: described(withDefault(timezone, "UTC"), "The timezone, such as Europe/Berlin"),
};

const NOTIFY_FILE = refined(
  object({
    $schema: SCHEMA_KEY,
    targets: described(withDefault(record(refined(object(TARGET_FIELDS), targetOf), TARGET_NAME), {}), "Where messages go"),
    send: described(withDefault(list(RULE, { max: MOST.rules }), []), "Which events go to which targets"),
    quiet: described(
      otherwise(list(refined(object(QUIET_FIELDS), quietOf), { max: MOST.quiet }), []),
      "Hours in which messages wait",
    ),
  }),
  wholeFile,
);

/** The JSON Schema of notify.json. */
export const NOTIFY_SCHEMA = NOTIFY_FILE.schema;

/** Where messages go. */
export type NotifyTarget = ReturnType<typeof targetOf>;
/** Which events go to which targets. */
export type NotifyRule = Infer<typeof RULE>;
/** What notify.json says, with the texts of its templates by file name. */
export type Notify = Omit<Infer<typeof NOTIFY_FILE>, "$schema"> & { templates: Readonly<Record<string, string>> };

/** What a bucket without the file has. */
export const NO_NOTIFY: Notify = { targets: {}, send: [], quiet: [], templates: {} };

/**
 * Reads `workspace/notify.json` and its templates (`ErrInvalidNotify`), and answers the text that a build stores. Nothing
 * is told where there is no file.
 */
export async function readNotify(layout: Layout, problems: Problems): Promise<{ text: string }> {
  const found = problems.in(relative(layout, layout.notifyJson), "ErrInvalidNotify");
  const file = (await readSource(parseSourceJson, layout, found)) ?? {};
  const { targets } = found.take(check(NOTIFY_FILE, file)) ?? NO_NOTIFY;
  const names = new Set(Object.values(targets).flatMap(({ body }) => (body.endsWith(".tpl") ? [body] : [])));
  const templates: Record<string, string> = {};
  for (const name of names) templates[name] = await readTemplate(layout, name, problems);
  return { text: JSON.stringify({ file, templates }) };
}

/** What a text says that a build has stored. What a build of another version let pass counts as none. */
export function storedNotify(text: string): Notify {
  const stored = parsedJson(text);
  if (!isObject(stored) || !isObject(stored.templates)) return NO_NOTIFY;
  const checked = check(NOTIFY_FILE, stored.file);
  return checked.ok ? { ...checked.value, templates: stored.templates as Record<string, string> } : NO_NOTIFY;
}

/** What the last build found in notify.json. */
export function builtNotify(db: Database): Notify {
  return storedNotify(db.get<{ notify: string }>("SELECT notify FROM bucket")?.notify ?? "{}");
}

async function readTemplate(layout: Layout, name: string, problems: Problems): Promise<string> {
  const found = problems.in(`workspace/${name}`, "ErrInvalidTemplate");
  const parse = (bytes: Uint8Array, into: FileProblems) => decodeUtf8(bytes) ?? void into.error("", "is not UTF-8 text");
  const before = problems.errors.length;
  const text = await readSource(parse, layout, found);
  if (text === undefined) {
    if (problems.errors.length === before) found.error("", "is named in notify.json and is not there");
    return "";
  }
  try {
    renderBody(name, { [name]: text }, SAMPLE);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    found.error("", messageOf(error));
  }
  return text;
}

type Given = { [K in keyof typeof TARGET_FIELDS]: Infer<(typeof TARGET_FIELDS)[K]> };

function targetOf(given: Given, path: string, report: Report) {
  const { webhook, command, headers, sign, body } = given;
  if ((webhook === undefined) === (command === undefined)) report(path, "expected either webhook or command");
  if (command !== undefined && !String(command[0]).startsWith("/"))
    report(join(join(path, "command"), 0), "expected the absolute path of an executable");
  if (command !== undefined && (Object.keys(headers).length > 0 || sign !== undefined || given.private))
    report(path, "headers, sign and private go only with a webhook");
  if (typeof webhook === "string") checkAddress(webhook, given.private, { path: join(path, "webhook"), report });
  if (Object.keys(headers).length > MOST.headers) report(join(path, "headers"), `expected at most ${MOST.headers}`);
  for (const name of Object.keys(headers))
    if (!/^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$/.test(name) || RESERVED_HEADERS.test(name))
      report(join(join(path, "headers"), name), "is no header that can be set here");
  return { webhook, command, headers, sign, body, isPrivate: given.private };
}

/** What can be told of an address before its name is looked up; the rest is checked with each request. */
function checkAddress(text: string, isPrivate: boolean, { path, report }: { path: string; report: Report }): void {
  const problem = addressProblem(text);
  if (problem !== undefined) report(path, problem);
  else if (new URL(text).protocol === "http:" && !isPrivate)
    report(path, 'an address on the server\'s own host needs "private": true');
}

/** What is wrong with the address of a webhook; undefined where nothing is. Never quotes it: it may hold a secret. */
export function addressProblem(text: string): string | undefined {
  const { protocol = "", hostname = "", username = "", password = "" } = URL.canParse(text) ? new URL(text) : {};
  const isHere = hostname === "localhost" || isLoopback(hostname.replace(/^\[|\]$/g, ""));
  if (username !== "" || password !== "") return "a user and a password in an address are not sent: use a header";
  if (protocol === "https:" || (protocol === "http:" && isHere)) return undefined;
  return "expected an address with https://, or with http:// on the server's own host";
}

type GivenQuiet = { [K in keyof typeof QUIET_FIELDS]: Infer<(typeof QUIET_FIELDS)[K]> };

function quietOf({ from, to, days, timezone }: GivenQuiet, path: string, report: Report) {
  if (from === to) report(join(path, "to"), "must differ from from");
  return { fromMinute: from, toMinute: to, days: days.map((day) => DAYS.indexOf(day)), timezone };
}

function wholeFile<T extends { targets: object; send: NotifyRule[] }>(file: T, path: string, report: Report): T {
  const names = Object.keys(file.targets ?? {});
  if (names.length > MOST.targets) report(join(path, "targets"), `expected at most ${MOST.targets}`);
  for (const [index, { to = [] }] of (file.send ?? []).entries())
    for (const [at, name] of to.entries())
      if (!names.includes(name)) report(`send/${index}/to/${at}`, `there is no target ${quote(String(name))}`);
  return file;
}

function bodyName(): Shape<string> {
  return {
    schema: {
      anyOf: [
        { type: "string", enum: [...READY_BODIES] },
        { type: "string", pattern: "^[A-Za-z0-9_.-]+[.]tpl$" },
      ],
    },
    check(value, path, report) {
      if (READY_BODIES.includes(value as (typeof READY_BODIES)[number])) return value as string;
      const name = fileName.check(value, path, report);
      if (!name.endsWith(".tpl")) report(path, `expected one of ${READY_BODIES.join(", ")}, or a file <name>.tpl`);
      return name;
    },
  };
}

/** What a clock shows, in minutes since midnight. */
function clock(): Shape<number> {
  const shape = string({ pattern: /^(?:[01]\d|2[0-3]):[0-5]\d$/, means: "a time of the day such as 22:00" });
  return {
    schema: shape.schema,
    check(value, path, report) {
      const [hours, minutes] = String(shape.check(value, path, report)).split(":");
      return Number(hours) * 60 + Number(minutes);
    },
  };
}

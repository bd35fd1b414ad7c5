import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { openForReading } from "../../bucket/base/database.ts";
import { layoutOf } from "../../bucket/base/layout.ts";
import { isUuid, timeOfUuid } from "../../codec/uuid.ts";
import { realPlace } from "../../core/files.ts";
import { PROGRAM_ROOT } from "../../core/self.ts";
import { BUCKET_DIR, type Command, commandNamed, type Flag, type Operand, serverFlags } from "../base/flags.ts";
import { SERVICE } from "../server/unit.ts";

/** A word that may stand at the cursor, and what is told about it. */
type Candidate = readonly [word: string, about: string];

/** For the shell: names of files, names of folders. */
const [FILES, FOLDERS] = [":files", ":folders"];
const MOST_RUNS = 50;
/** A shell reads nothing into these characters: a name of a bucket must not become a command. */
const PLAIN = /^[\w.,:@%+=/-]+$/;

/** What the database of a bucket knows of a flag's or an operand's values, by its name. */
const QUERIES: Readonly<Record<string, string>> = {
  job: "SELECT name, version FROM job ORDER BY 1",
  worker: "SELECT worker_ip, hostname FROM worker WHERE removed = 0 ORDER BY position",
  label: "SELECT label, COUNT(*) || ' workers' FROM worker_labels GROUP BY 1 ORDER BY 1",
  hook: "SELECT name, group_concat(DISTINCT job) FROM hooks GROUP BY 1 ORDER BY 1",
  namespace: "SELECT DISTINCT namespace, '' FROM key_value WHERE deleted = 0 ORDER BY 1",
};
const ALSO: Readonly<Record<string, string>> = { "force-only": "worker", retry: "run", plan: "run", against: "revision" };

/** `ops completion words`: reads the words before the cursor from stdin, each with a NUL behind it. Silent about errors. */
export function completeWords(commands: readonly Command[]): string {
  try {
    const words = readFileSync(0, "utf8").split("\0").slice(0, -1);
    return completionsOf(commands, words)
      .map(([word, about]) => `${word}\t${about}\n`)
      .join("");
  } catch {
    return "";
  }
}

/** What the last of the words may become; the words before it stand behind `ops` on the command line. */
export function completionsOf(commands: readonly Command[], words: readonly string[]): Candidate[] {
  const isHelp = words[0] === "help";
  const before = words.slice(isHelp ? 1 : 0, -1);
  const typed = words.at(-1) ?? "";
  const shown = commands.filter((one) => !one.hidden);
  const command = commandNamed(shown, before);
  const found = [
    ...nextWords(shown, before),
    ...(command && !isHelp ? ofCommand(command, before.slice(command.name.split(" ").length), typed) : []),
  ];
  return found.filter(([word]) => (word.startsWith(typed) && PLAIN.test(word)) || word === FILES || word === FOLDERS);
}

/** The words that may follow in the names of commands, each with its command's summary or with the words behind it. */
function nextWords(commands: readonly Command[], before: readonly string[]): Candidate[] {
  const fitting = commands.map(({ name, summary }) => ({ parts: name.split(" "), summary }));
  const next = fitting.filter(({ parts }) => parts.length > before.length && before.every((one, at) => one === parts[at]));
  return [...Map.groupBy(next, ({ parts }) => parts[before.length] as string)].map(([word, all]) => {
    const whole = all.find(({ parts }) => parts.length === before.length + 1);
    return [word, whole?.summary ?? [...new Set(all.map(({ parts }) => parts[before.length + 1]))].join(", ")];
  });
}

/** Flags, values and operands of a command; `before` are the words between its name and the cursor. */
function ofCommand(command: Command, before: readonly string[], typed: string): Candidate[] {
  const all = [...command.flags, ...serverFlags(command)];
  const given = new Map<string, string>();
  let [operands, awaited]: [number, Flag | undefined] = [0, undefined];
  for (const word of before) {
    const [name = "", value] = word.split("=");
    if (awaited) {
      given.set(awaited.name, word);
      awaited = undefined;
    } else if (word.startsWith("-")) {
      const flag = all.find((one) => name === `--${one.name}` || name === `-${one.short}`);
      given.set(flag?.name ?? "", value ?? "");
      if (flag?.value !== undefined && value === undefined) awaited = flag;
    } else operands++;
  }
  const dir = given.get(BUCKET_DIR.name) ?? ".";
  if (awaited) return valuesOf(awaited, dir, typed);
  const [name = "", value] = typed.split("=");
  const flag = all.find((one) => name === `--${one.name}`);
  if (flag && value !== undefined) return valuesOf(flag, dir, value).map(([word, about]) => [ownWord(name, word), about]);
  const operand = command.operands?.[operands];
  const flags = all.filter((one) => !given.has(one.name)).map((one): Candidate => [`--${one.name}`, one.help]);
  if (typed.startsWith("-") || !operand) return flags;
  return valuesOf(operand, dir, typed);
}

function ownWord(name: string, word: string): string {
  return word === FILES || word === FOLDERS ? word : `${name}=${word}`;
}

/** The values of a flag or an operand; of a list, the next part behind what was typed. */
function valuesOf(what: Flag | Operand, dir: string, typed: string): Candidate[] {
  const { name, choices } = what;
  const kind = "value" in what ? what.value : undefined;
  if (kind === "FILE") return [[FILES, ""]];
  if (kind === "DIR") return [[FOLDERS, ""]];
  const values = choices?.map((word): Candidate => [word, ""]) ?? namesOf(ALSO[name] ?? name.replace(/s$/, ""), dir);
  if (kind !== "A,B" && name !== "jobs") return values;
  const done = typed.slice(0, typed.lastIndexOf(",") + 1);
  const taken = done.split(",");
  return values.filter(([word]) => !taken.includes(word)).map(([word, about]) => [done + word, about]);
}

function namesOf(name: string, dir: string): Candidate[] {
  const layout = layoutOf(realPlace(dir));
  if (name === "snapshot") return readdirSync(layout.snapshots).map((file) => [file, ""]);
  if (name === "bucket") {
    const root = process.env.OPS_SERVE_ROOT || SERVICE.root;
    return readdirSync(root)
      .filter(isUuid)
      .map((id) => [id, root]);
  }
  if (name === "run") {
    const ids = readdirSync(layout.runs).filter(isUuid).sort().slice(-MOST_RUNS).reverse();
    return ids.map(withTime);
  }
  if (name === "revision") return readdirSync(layout.revisions).filter(isUuid).map(withTime);
  const sql = QUERIES[name];
  if (sql === undefined) return [];
  using db = openForReading(layout.database);
  return db.tuples<[string, string | null]>(sql).map(([word, about]) => [word, (about ?? "").replace(/[\p{C}]/gu, " ")]);
}

/** An id, and when it was made. */
function withTime(id: string): Candidate {
  return [id, new Date(timeOfUuid(id)).toISOString()];
}

/** What a shell reads to complete command lines of ops; the table of commands stays in the program. */
export function completionScript(shell: string): string {
  return readFileSync(path.join(PROGRAM_ROOT, `lib/cli/scripts/completion.${shell}`), "utf8");
}

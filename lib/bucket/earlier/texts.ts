import { placesInJson } from "../../codec/config/json.ts";
import { lineAndColumn } from "../../core/plain-text.ts";
import { isObject } from "../../core/shape.ts";

/** The hooks of each job of the workspace, for lines that name both and do not say which is which. */
export type KnownHooks = ReadonlyMap<string, ReadonlySet<string>>;

/** A text in the present form, and the lines with names that nothing here can judge. */
export interface MigratedText {
  text: string;
  looks: { line: number; message: string }[];
}

/** Older names of fields of a manifest, which a build accepts with a warning. */
const FIELDS = {
  update_parallel_count: "max_concurrent_upgrades",
  deploy_parallel_count: "max_concurrent_starts",
  commands: "hooks",
};
const DEMAND_FIELDS = { command: "hook" };

/** Every variable of scripts that has an older name. */
const VARIABLES = new Set([
  ...["ALLOCATION_ID", "ALLOCATION_IP", "ALLOCATION_INDEX", "JOB", "EVENT", "COMMAND", "HOOK", "DISABLED"],
  ...["CURRENT_VERSION", "NEW_VERSION", "BATCH_ALLOCATIONS", "BATCH_INDEX", "BATCH_COUNT", "DEPLOY_PHASE"],
  ...["ROLLOUT_ORDER", "ROLLOUT_ORDER_SOURCE", "HOOK_API_HOST", "HOOK_API_PORT", "BUCKET_ROOT", "BUCKET_ID", "WORKER_IP"],
  ...["NEW_ALLOCATIONS", "UPDATED_ALLOCATIONS", "TARGET", "DRY_RUN"],
]);
const VARIABLE = /\b(MAAND|JOB_COMMAND)_([A-Z][A-Z0-9_]*)\b/g;
/** The folder of a job by itself, from where the script lies, or below `jobs/<job>/`. */
const OLD_FOLDER = /(?:(?<![\w./-])|(?<=(?<![\w.])\.{1,2}\/)|(?<=\bjobs\/[\w-]+\/))_modules(?=[/"'`])/g;

/** What may be left of the earlier form. Whoever reads the line decides. */
const EARLIER_NAME = /maand\w*|\bJOB_COMMAND\w*|\bjob_?commands?\b|(?<!\w)_modules\b|\bjob_ports\b/gi;
/** A module's name of its own choice in a script that has the present helper. */
const OWN_NAME = /\*\s+as\s+maand\b|(?<![\w."'`/-])maand(?=\.\w+\()/g;

/**
 * The text of a file of a bucket in the present form; `file` is below the bucket, with `/`. Only what has one meaning is
 * changed. A text in the present form is answered as it is, and no line moves.
 */
export function migratedText(file: string, text: string, hooks: KnownHooks): MigratedText {
  const looks: MigratedText["looks"] = [];
  let after = text;
  if (/^(workspace\/jobs|templates)\/[^/]+\/manifest\.json$/.test(file))
    after = manifestText(text, (at, message) => looks.push({ line: lineAndColumn(text, at).line, message }));
  // Only what the server runs has the helper and the variables; a job's other files may use such names for their own.
  const isHook = /\/(_modules|_hooks)\//.test(file);
  const isScript = isHook && /\.[cm]?[jt]s$/.test(file);
  /** Names that could be judged, had the file no other use for them. */
  const kept = new Map<string, string>();
  const keep: Keep = (name, why) => kept.set(name, why);
  if (isScript || (isHook && file.endsWith(".py"))) after = scriptText(after, isScript ? "node" : "python", keep);
  if (isHook) after = after.replace(OLD_FOLDER, "_hooks");
  if (isHook || file === "workspace/command.sh") after = variablesText(after, keep);
  if (file.endsWith(".tpl")) after = templateText(after);
  const isShell = /(^|\/)Makefile[^/]*$|\.(mk|sh|bash)(\.tpl)?$/.test(file) || /^#!.*\b(ba|da|k|z)?sh\b/.test(text);
  if (isShell) after = shellText(after, hooks);
  if (!/\.(md|txt|rst|html?)$/.test(file)) after = wordsText(after, file);
  const unknown = "what this earlier name means here is not known";
  for (const [index, line] of after.split("\n").entries()) {
    const found = (isScript ? line.replace(OWN_NAME, "") : line).match(EARLIER_NAME) ?? [];
    const words = kept.size > 0 ? (line.match(/\w+/g) ?? []).filter((word) => kept.has(word)) : [];
    for (const name of new Set([...found, ...words]))
      looks.push({ line: index + 1, message: `"${name}" stays: ${kept.get(name) ?? unknown}` });
  }
  return { text: after, looks };
}

/** A variable stays where the text has its present name already, which may be a variable of the script's own. */
function variablesText(text: string, keep: Keep): string {
  return text.replace(VARIABLE, (name, kind, rest) => {
    const present = presentName(kind, rest) ?? name;
    if (present === name || !new RegExp(String.raw`\b${present}\b`).test(text)) return present;
    keep(name, `the file has the name "${present}" already`);
    return name;
  });
}

function presentName(kind: string, rest: string): string | undefined {
  return [...(kind === "JOB_COMMAND" ? [`HOOK_${rest}`, rest] : [rest, `HOOK_${rest}`])].find((one) => VARIABLES.has(one));
}

/** Renames fields where they stand and leaves all else as it was written. What is no JSON is left to the build. */
function manifestText(text: string, look: (at: number, message: string) => void): string {
  try {
    if (!isObject(JSON.parse(text))) return text;
  } catch {
    return text;
  }
  type Place = ReturnType<typeof placesInJson>;
  const found: { at: number; to: string }[] = [];
  const membersOf = (place: Place | undefined, key: string) =>
    place?.members.filter((one) => one.key.toLowerCase() === key).flatMap(({ value }) => value.members) ?? [];
  const rename = (place: Place, names: Record<string, string>) => {
    for (const { key, value } of place.members) {
      const to = names[key.toLowerCase()];
      if (to === undefined) continue;
      if (place.members.some((one) => one.key.toLowerCase() === to))
        look(value.at, `${key} and ${to} are both there: keep ${to}`);
      else found.push({ at: value.at, to });
    }
  };
  const whole = placesInJson(text);
  rename(whole, FIELDS);
  for (const { value: hook } of [...membersOf(whole, "commands"), ...membersOf(whole, "hooks")])
    for (const { key, value: demands } of hook.members) if (key.toLowerCase() === "demands") rename(demands, DEMAND_FIELDS);
  const ordered = found.sort((a, b) => b.at - a.at);
  return ordered.reduce((all, { at, to }) => all.slice(0, at) + all.slice(at).replace(/"(?:[^"\\]|\\.)*"/, `"${to}"`), text);
}

/** Namespaces that stand as whole strings in the actions of a template. */
function templateText(text: string): string {
  return text.replace(/\{\{(?:"(?:\\.|[^"\\\n])*"|`[^`]*`|(?!\}\}|\{\{)[^"`])*\}\}/g, (action) =>
    action
      .replace(/(["`])maand(?=\/(?:bucket|worker|job|prometheus)(?:\/|\1))/g, "$1ops")
      .replace(/\b(get|getOptional|keys)(\s+["`])(?:maand|ops)(?=["`])/g, "$1$2ops/bucket"),
  );
}

/** Where a shell or a recipe of make begins a command. Bounded, because it is asked for at every place of a text. */
const START = String.raw`(?<=^[ \t]{0,40}[@-]?[ \t]{0,4}|[;&|(\x60][ \t]{0,4}|\b(?:then|do|else|sudo|exec|time)[ \t]{1,4})`;
const OLD_HOOKS = new RegExp(String.raw`${START}(?:maand|ops)[ \t]+job_?command([ \t]+)([\w-]+)(?:([ \t]+)([\w-]+))?`, "gm");
const OLD_PORTS = new RegExp(String.raw`${START}(?:maand|ops)([ \t]+cat[ \t]+)job_ports\b`, "gm");
const OLD_FACTS = new RegExp(String.raw`${START}maand([ \t]+)worker_facts\b`, "gm");
const SAME = "init|build|deploy|health_check|job|run_command|gc|cat|info|logs|hooks";
const OLD_PROGRAM = new RegExp(String.raw`${START}maand(?=[ \t]+(?:${SAME})(?![\w-]))`, "gm");

function shellText(text: string, hooks: KnownHooks): string {
  const isHook = (job: string, hook: string) => hooks.get(job.toLowerCase())?.has(hook.toLowerCase()) ?? false;
  return text
    .replace(OLD_HOOKS, (line, ...[blank, one = "", between, two = ""]: string[]) => {
      if (between === undefined) return [...hooks.keys()].some((job) => isHook(job, one)) ? `ops hooks${blank}${one}` : line;
      if (isHook(two, one) === isHook(one, two)) return line;
      return isHook(two, one) ? `ops hooks${blank}${one}${between}${two}` : `ops hooks${blank}${two}${between}${one}`;
    })
    .replace(OLD_PORTS, "ops$1ports")
    .replace(OLD_FACTS, "ops$1worker facts")
    .replace(OLD_PROGRAM, "ops");
}

/** What may stand before a path of the bucket: nothing, folders, or the variable with the folder of the bucket. */
const IN_BUCKET = /^(?:\$BUCKET_ROOT\/|\$\{BUCKET_ROOT\}\/)?(?:[\w.-]+\/)*$/;
const LONGEST_PATH = 500;

/** Names that mean one thing wherever they stand; paths only below the bucket, for others are those of other programs. */
function wordsText(text: string, file: string): string {
  const inBucket = (found: string, to: string, at: number, all: string) => {
    const [before = ""] = /[^\s"'`=:,;()<>|&[\]]*$/.exec(all.slice(Math.max(0, at - LONGEST_PATH), at)) ?? [];
    return IN_BUCKET.test(before) ? to : found;
  };
  const words = text
    .replace(/\bMAAND_(?=SERVE_(ROOT|TOKEN)\b)/g, "OPS_")
    .replace(/(?<![\w-])maand\.conf(?![\w-])/g, (found, at, all) => inBucket(found, "ops.conf", at, all))
    .replace(/(?<![\w.-])(rules|logs)\/maand(?=\/|\.log\b)/g, (found, folder, at, all) =>
      inBucket(found, `${folder}/ops`, at, all),
    );
  if (!file.includes("/_prometheus/")) return words;
  return words.replace(/(?<![\w-])maand:(?=port\/|job\b)/g, "ops:").replace(/\bmaand_cert_/g, "ops_cert_");
}

/** A stretch of a script: code, or a string or comment with its quotes and marks. */
interface Piece {
  kind: "code" | "string" | "comment";
  text: string;
}

const PYTHON =
  /#[^\n]*|[rRbBuUfF]{0,2}(?:"""(?:\\[\s\S]|[^\\])*?"""|'''(?:\\[\s\S]|[^\\])*?'''|"(?:\\[\s\S]|[^"\\\n])*"|'(?:\\[\s\S]|[^'\\\n])*')/g;

/** Older names of functions of the helper, which `ops.py` still has. */
const FUNCTIONS: Readonly<Record<string, string>> = {
  put_deploy_order: "put_rollout_order",
  get_deploy_order: "get_rollout_order",
  get_allocation_id: "allocation_id",
  get_allocation_ip: "allocation_ip",
  get_allocation_index: "allocation_index",
  get_job: "job_name",
  get_event: "hook_event",
  get_command: "hook_name",
  kv_get: "get_store_value",
  kv_put: "put_job_variable",
  kv_put_secret: "put_job_secret",
  get_demands: "list_hook_demands",
};
const NAMESPACE = String.raw`maand(?=\/(?:bucket|worker|job|prometheus)(?:[\/"'\x60]|$))`;

/** Hears of a name that stays, and why. */
export type Keep = (name: string, why: string) => void;

/** An f-string is code, and other strings may be run or looked up. */
const IN_STRING = "a string of the script has this name too";

/** A script with the present helper: its import, its functions, and the namespaces that stand as strings. */
export function scriptText(text: string, language: "python" | "node", keep: Keep): string {
  return language === "python" ? pythonText(text, keep) : nodeText(text, keep);
}

/** The module in a string: behind it a name, or nothing else in the string. Files are no names of it. */
const MODULE_IN_STRING = /(?<![\w./-])maand\s{0,9}\.\s{0,9}(?!(?:conf|log)\b)[A-Za-z_]|^\w*["']+maand["']+$/;

function pythonText(text: string, keep: Keep): string {
  const pieces = withNamespaces(piecesOf(text));
  const code = pieces.map((piece) => (piece.kind === "code" ? piece.text : " ")).join("");
  const strings = pieces.filter(({ kind }) => kind === "string").map((piece) => piece.text);
  const isPlain = /^[ \t]*import[ \t]+maand[ \t]*(;|$)/m.test(code);
  const isInString = /\bmaand\b/.test(code) && strings.some((string) => MODULE_IN_STRING.test(string));
  // A person has to choose another name.
  const isShared = isPlain && !(isModuleOnly("maand", code) && isModuleOnly("ops", code));
  if (isInString || isShared) keep("maand", isInString ? IN_STRING : 'the script uses "maand" or "ops" for something else too');
  const imports = (one: string) => {
    if (isInString || isShared) return one;
    const imported = one
      .replace(/^([ \t]*import[ \t]+)maand(?=[ \t]*(?:;|$|as[ \t]+\w))/gm, "$1ops")
      .replace(/^([ \t]*from[ \t]+)maand(?=[ \t]+import\b)/gm, "$1ops");
    return isPlain ? imported.replace(/(?<![\w.])maand(?=\.\w)/g, "ops") : imported;
  };
  const isWordIn = (name: string) => (one: string) => new RegExp(String.raw`\b${name}\b`).test(one);
  const kept = Object.keys(FUNCTIONS).filter((name) => isWordIn(name)(code) && strings.some(isWordIn(name)));
  for (const name of kept) keep(name, IN_STRING);
  const functions = Object.entries(FUNCTIONS).filter(([name]) => !kept.includes(name));
  const rename = functionsIn(imports(code), functions);
  return pieces.map((piece) => (piece.kind === "code" ? rename(imports(piece.text)) : piece.text)).join("");
}

/** True where a script has this name in imports of the helper and in front of a name of the helper, and nowhere else. */
function isModuleOnly(name: string, code: string): boolean {
  const others = code.replace(/^[ \t]*(?:import|from)[ \t]+(?:maand|ops)\b(?:[ \t]+as[ \t]+\w+)?/gm, "");
  return !new RegExp(String.raw`(?<![\w.])${name}\b(?!\.\w)`).test(others);
}

function piecesOf(text: string): Piece[] {
  const pieces: Piece[] = [];
  let end = 0;
  for (const { 0: found, index } of text.matchAll(PYTHON)) {
    pieces.push({ kind: "code", text: text.slice(end, index) });
    pieces.push({ kind: found.startsWith("#") ? "comment" : "string", text: found });
    end = index + found.length;
  }
  return [...pieces, { kind: "code", text: text.slice(end) }];
}

/** A string is a namespace where all of it reads as one; a bare name only where it is what a function of the helper asks for. */
function withNamespaces(pieces: readonly Piece[]): Piece[] {
  const namespace = new RegExp(String.raw`^(\w*["']+)${NAMESPACE}`);
  return pieces.map((piece, index) => {
    if (piece.kind !== "string") return piece;
    const isAsked = /\b(get_store_value|get_kv_value|kv_get|list_job_keys)\(\s*$/.test(pieces[index - 1]?.text ?? "");
    const bare = isAsked ? piece.text.replace(/^(["'])(?:maand|ops)\1$/, "$1ops/bucket$1") : piece.text;
    return { ...piece, text: bare.replace(namespace, "$1ops") };
  });
}

/** What renames the functions of the helper: behind its name, and by themselves where they were imported. */
function functionsIn(code: string, functions: [old: string, name: string][]): (text: string) => string {
  const imported = code.matchAll(/^[ \t]*import[ \t]+(?:(?:maand|ops)[ \t]+as[ \t]+(\w+)|(ops)[ \t]*(?:;|$))/gm);
  const names = new Set([...imported].map(([, alias, ops]) => (alias ?? ops) as string));
  const modules = [...names].filter((name) => isModuleOnly(name, code)).join("|");
  const hasFrom = /^[ \t]*from[ \t]+(?:maand|ops)[ \t]+import\b/m.test(code);
  const word = (name: string) => new RegExp(String.raw`(?<![\w.])${name}\b`, "g");
  // A name that the script has already, or gives to something itself, would change its meaning.
  const own = ([old, name]: [string, string]) =>
    word(name).test(code) || new RegExp(String.raw`\b(?:def|as)\s+${old}\b|(?<![\w.])${old}\s*=(?!=)`).test(code);
  const bare = hasFrom ? functions.filter((pair) => !own(pair)) : [];
  const present = new Map(functions);
  return (text) => {
    const behind = new RegExp(String.raw`(?<![\w.])(${modules || "(?!)"})\.(\w+)\b`, "g");
    const renamed = text.replace(behind, (_, module, name) => `${module}.${present.get(name) ?? name}`);
    return bare.reduce((all, [old, name]) => all.replace(word(old), name), renamed);
  };
}

/** The local name of the module may stay; only the file that is imported has another one. */
function nodeText(text: string, keep: Keep): string {
  const imported = text.replace(
    /(\b(?:from|import|require)\s{0,9}\(?\s{0,9}["'](?:\.\/)?)maand(?=(?:\.[cm]?[jt]s)?["'])/g,
    "$1ops",
  );
  const hasHelper = /\b(?:from|import|require)\s{0,9}\(?\s{0,9}["'](?:\.\/)?ops(?:\.[cm]?[jt]s)?["']/.test(imported);
  const renamed = imported.replace(/(?<=[\s.{,(])(put|get)DeployOrder\b/g, (old, verb) => {
    const name = `${verb}RolloutOrder`;
    if (hasHelper && !imported.includes(name)) return name;
    if (hasHelper) keep(old, `the script has the name "${name}" already`);
    return old;
  });
  return renamed
    .replace(new RegExp(String.raw`(["'\x60])${NAMESPACE}`, "g"), "$1ops")
    .replace(/\b((?:getStoreValue|getKvValue|listJobKeys)\(\s*(["'`]))(?:maand|ops)(?=\2)/g, "$1ops/bucket");
}

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

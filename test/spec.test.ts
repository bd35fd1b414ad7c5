import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** Where ids and headings are cited. */
const FOLDERS = ["lib", "bin", "test", "scripts", "docs", "ui"];
/** This file shows citations of clauses that do not exist. */
const SELF = "test/spec.test.ts";
const SPEC = "docs/spec";

const ID = /\b(?:(?:CP|HR)-\d{3}|T-\d{2,3})\b/g;
/** An item of a list that begins with an id in bold letters defines that clause. */
const DEFINITION = /^ *- \*\*((?:CP|HR)-\d{3}|T-\d{2,3})\*\*:/;
/** What follows is the heading that is cited. */
const CITATIONS = [
  /(?<page>\b(?:control-plane|hook-runtime)\.md), /g,
  /(?<page>\bdecisions)(?:\.md,|:) (?=[A-Z])/g,
  /(?<page>\bdocs\/[\w/-]+\.md), (?=[A-Z])/g,
];

const PAGE_NAME = /\bdocs\/[\w/-]+\.md\b/g;

/** A file by its path from the root of the project, with `/`. */
interface Source {
  file: string;
  text: string;
}

/** The rules of a page: the numbers of the numbered list below each heading. */
type Sections = Map<string, Set<number>>;

/** A heading may be cited without what it has in parentheses. */
function sectionsOf(text: string): Sections {
  const sections: Sections = new Map();
  let rules = new Set<number>();
  for (const line of text.replace(/^```.*?^```/gms, "").split("\n")) {
    const heading = /^#+ (.*?)(?: \(.*\))?$/.exec(line)?.[1];
    const rule = /^(\d+)\. /.exec(line)?.[1];
    if (heading !== undefined) {
      rules = new Set();
      sections.set(heading, rules);
    } else if (rule !== undefined) rules.add(Number(rule));
  }
  return sections;
}

function definitionsOf({ text }: Source): string[] {
  return text.split("\n").flatMap((line) => DEFINITION.exec(line)?.[1] ?? []);
}

function idsIn({ text }: Source): string[] {
  return [...text.matchAll(ID)].map(([id]) => id);
}

/** Comments as running text, so that a citation may go on in the next line. */
function runningText(text: string): string {
  return text.replace(/\n[ \t]*(?:\/\/|\*(?!\/)|#+ )?[ \t]*/g, " ");
}

function isSpec({ file }: Source): boolean {
  return file.startsWith(`${SPEC}/`);
}

/** Clauses that are cited and not defined, defined twice, or defined and named by no test. */
function clauseProblems(sources: readonly Source[]): string[] {
  const defined = sources.filter(isSpec).flatMap(definitionsOf);
  const known = new Set(defined);
  const tested = new Set(sources.filter(({ file }) => file.startsWith("test/")).flatMap(idsIn));
  const doubles = defined.filter((id, index) => defined.indexOf(id) !== index);
  const unknown = sources.flatMap((source) =>
    [...new Set(idsIn(source))].filter((id) => !known.has(id)).map((id) => `${source.file} names ${id}`),
  );
  return [
    ...doubles.map((id) => `${id} is defined twice in ${SPEC}; give one of the two another number`),
    ...unknown.map((what) => `${what}, which no page of ${SPEC} defines`),
    ...[...known].filter((id) => !tested.has(id)).map((id) => `${id} is named by no test; prove it or drop it`),
  ];
}

/** Citations of pages, headings and rules that do not exist. */
function citationProblems(sources: readonly Source[]): string[] {
  const pages = new Map(sources.filter(({ file }) => file.endsWith(".md")).map(({ file, text }) => [file, sectionsOf(text)]));
  return sources.flatMap(({ file, text }) => {
    const running = runningText(text);
    const gone = [...new Set(running.match(PAGE_NAME))].filter((page) => !pages.has(page));
    const wrong = CITATIONS.flatMap((pattern) => [...running.matchAll(pattern)]).flatMap((match) => {
      const cited = running.slice(match.index + match[0].length, match.index + match[0].length + 80);
      const problem = citationProblem(pages, match.groups?.page ?? "", cited);
      return problem === undefined ? [] : [`cites ${match[0]}${cited.slice(0, 40)}: ${problem}`];
    });
    return [...gone.map((page) => `names ${page}, which does not exist`), ...wrong].map((what) => `${file} ${what}`);
  });
}

function citationProblem(pages: ReadonlyMap<string, Sections>, name: string, cited: string): string | undefined {
  const page = name.startsWith("docs/") ? name : `${SPEC}/${name.replace(/\.md$/, "")}.md`;
  const sections = pages.get(page);
  if (sections === undefined) return `there is no page ${page}`;
  const fits = [...sections.keys()].filter((heading) => cited.startsWith(heading) && !/^\w/.test(cited.slice(heading.length)));
  const heading = fits.sort((one, other) => other.length - one.length)[0];
  if (heading === undefined) return `${page} has no such heading`;
  const rule = /^ (\d+)\b/.exec(cited.slice(heading.length))?.[1];
  if (rule === undefined || sections.get(heading)?.has(Number(rule))) return undefined;
  return `"${heading}" in ${page} has no rule ${rule}`;
}

function readSources(): Source[] {
  return FOLDERS.flatMap((folder) =>
    readdirSync(path.join(ROOT, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && /\.(?:ts|js|mjs|md|html|css|py|sh)$/.test(entry.name))
      .map((entry) => path.join(entry.parentPath, entry.name))
      .map((file) => ({ file: path.relative(ROOT, file).split(path.sep).join("/"), text: readFileSync(file, "utf8") })),
  ).filter(({ file }) => file !== SELF);
}

function assertNone(problems: readonly string[]): void {
  assert.ok(problems.length === 0, `\n${problems.join("\n")}\n`);
}

const sources = readSources();

test("each clause is defined once, and a test names it; no other clause is cited", () => {
  assert.ok(sources.filter(isSpec).flatMap(definitionsOf).length > 700, "the clauses are found");
  assertNone(clauseProblems(sources));
});

test("each page, heading and rule that is cited exists", () => {
  assertNone(citationProblems(sources));
});

const PAGE = `# Page
## Runs
1. One at a time.
   - **CP-001**: At most one.
2. The lock.
## Limits (of all)
- **T-01**: A trap.
`;
const SMALL: Source[] = [
  { file: `${SPEC}/control-plane.md`, text: PAGE },
  { file: `${SPEC}/decisions.md`, text: "## Hook runtime API\n1. A number.\n" },
  { file: "docs/deploy.md", text: "## Dry run\n" },
  { file: "test/a.test.ts", text: 'test("CP-001 T-01 one at a time", () => {});' },
];
const citing = (text: string): Source[] => [...SMALL, { file: "lib/a.ts", text }];

test("what the clauses say is held against what is cited", () => {
  assert.deepEqual(clauseProblems(citing("// CP-001, not UT-01 or CP-1")), []);
  assert.deepEqual(clauseProblems(citing("// CP-002")), ["lib/a.ts names CP-002, which no page of docs/spec defines"]);
  assert.deepEqual(clauseProblems([...SMALL, { file: `${SPEC}/traps.md`, text: "- **T-01**: Again.\n" }]), [
    "T-01 is defined twice in docs/spec; give one of the two another number",
  ]);
  assert.deepEqual(clauseProblems(SMALL.slice(0, 3)), [
    "CP-001 is named by no test; prove it or drop it",
    "T-01 is named by no test; prove it or drop it",
  ]);
});

test("a citation of a heading is held against its page", () => {
  for (const right of [
    "// control-plane.md, Runs 2: the lock",
    "/** What is counted (control-plane.md,\n *   Limits): failures. */",
    "// decisions: Hook\n// runtime API 1",
    "// docs/deploy.md, Dry run, and docs/deploy.md, which tells more",
    "// pure decisions: demands",
  ])
    assert.deepEqual(citationProblems(citing(right)), [], right);
  for (const [wrong, problem] of [
    ["control-plane.md, Run 2", "docs/spec/control-plane.md has no such heading"],
    ["control-plane.md, Runsome", "docs/spec/control-plane.md has no such heading"],
    ["control-plane.md, Runs 3", '"Runs" in docs/spec/control-plane.md has no rule 3'],
    ["control-plane.md, Limits 1", '"Limits" in docs/spec/control-plane.md has no rule 1'],
    ["hook-runtime.md, Events", "there is no page docs/spec/hook-runtime.md"],
    ["decisions: Hooks", "docs/spec/decisions.md has no such heading"],
    ["docs/deploy.md, Dry runs", "docs/deploy.md has no such heading"],
  ] as const)
    assert.deepEqual(citationProblems(citing(wrong)), [`lib/a.ts cites ${wrong}: ${problem}`]);
  assert.deepEqual(citationProblems(citing("docs/gone.md tells more")), ["lib/a.ts names docs/gone.md, which does not exist"]);
});

// The pages of the project name only what is there.
import assert from "node:assert/strict";
import { existsSync, globSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { rooms } from "../../scripts/measure.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", ...globSync("docs/**/*.md", { cwd: ROOT })];

const read = (page: string) => readFileSync(path.join(ROOT, page), "utf8");
const exists = (name: string) => existsSync(path.join(ROOT, name));

/** The anchors of a page's headings, as GitHub makes them. */
function anchorsOf(page: string): string[] {
  const headings = [...read(page).matchAll(/^#+ (.*)$/gm)].map(([, heading = ""]) => heading);
  return headings.map((heading) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N} _-]/gu, "")
      .replaceAll(" ", "-"),
  );
}

test("every link and picture of a page leads to a file, and to a heading where it names one", () => {
  for (const page of PAGES)
    for (const [, target = ""] of read(page)
      .replace(/`[^`\n]*`/g, "")
      .matchAll(/(?:\]\(|\bsrc(?:set)?=")([^)"\s]+)[)"]/g)) {
      if (target.includes(":")) continue;
      const [name = "", anchor] = target.split("#");
      const file = name === "" ? page : path.posix.join(path.posix.dirname(page), name);
      assert.ok(exists(file), `${page} links to ${target}`);
      if (anchor !== undefined) assert.ok(anchorsOf(file).includes(anchor), `${page} links to ${target}`);
    }
});

test("every file of the project that a page names is there", () => {
  const named = /(?<![\w/.-])(?:lib|test|scripts|docs|bench|ui|examples)\/[\w./-]*\w/g;
  // Pages about the code leave out `lib/` where that is clear.
  const folders = readdirSync(path.join(ROOT, "lib")).join("|");
  const short = new RegExp(`(?<![\\w/.-])(?:${folders})/[\\w/-]*\\w\\.(?:ts|sh)\\b`, "g");
  for (const page of PAGES) {
    for (const [name] of read(page).matchAll(named)) assert.ok(exists(name), `${page} names ${name}`);
    for (const [name] of read(page).matchAll(short)) assert.ok(exists(`lib/${name}`), `${page} names ${name}`);
  }
});

test("every name that a page finds in a file is there", () => {
  for (const page of PAGES)
    for (const [, name = "", file = ""] of read(page).matchAll(/`(\w+)`\s+in\s+`([\w/.-]+\.(?:ts|js|sh))`/g)) {
      const found = exists(file) ? file : `lib/${file}`;
      assert.match(read(found), new RegExp(`\\b${name}\\b`), `${page} looks for ${name} in ${file}`);
    }
});

test("every command of npm that a page names is there", () => {
  const { scripts } = JSON.parse(read("package.json"));
  for (const page of PAGES)
    for (const [, name = ""] of read(page).matchAll(/\bnpm run ([\w:-]+)/g))
      assert.ok(scripts[name] !== undefined, `${page} names npm run ${name}`);
});

test("the pages for auditors name every room of lib", () => {
  for (const page of ["docs/internals/modules.md", "docs/internals/reading.md"])
    for (const { folder } of rooms("lib")) assert.ok(read(page).includes(`\`${folder}\``), `${page} lacks ${folder}`);
});

import assert from "node:assert/strict";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { readConsole } from "../../lib/server/console-files.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const SMALLEST = { "main.js": "", "style/console.css": "" };

/** A folder with these files. */
function consoleOf(t: TestContext, files: Record<string, string>): string {
  const folder = temporaryFolder(t);
  for (const [name, text] of Object.entries({ ...SMALLEST, ...files })) {
    mkdirSync(path.dirname(path.join(folder, name)), { recursive: true });
    writeFileSync(path.join(folder, name), text);
  }
  return folder;
}

test("all pages and drawings are listed by the path they are served at, with their media types", async (t) => {
  const odd = { "a.js.svg": "odd", "docs/index.html.svg": "odd" };
  const files = { "index.html": "first", "docs/index.html": "second", "icon.svg": "drawn", ...odd };
  const assets = await readConsole(consoleOf(t, files));
  assert.deepEqual([...assets].map(([name, { type, content }]) => [name, type.split(";")[0], String(content)]).sort(), [
    ["/", "text/html", "first"],
    ["/a.js.svg", "image/svg+xml", "odd"],
    ["/console.css", "text/css", ""],
    ["/console.js", "text/javascript", ""],
    ["/docs", "text/html", "second"],
    ["/docs/", "text/html", "second"],
    ["/docs/console.css", "text/css", ""],
    ["/docs/console.js", "text/javascript", ""],
    ["/docs/index.html", "text/html", "second"],
    ["/docs/index.html.svg", "image/svg+xml", "odd"],
    ["/icon.svg", "image/svg+xml", "drawn"],
    ["/index.html", "text/html", "first"],
  ]);
});

test("CP-432 scripts and styles are joined: each once, behind what it imports, without types, comment lines and indentation", async (t) => {
  const folder = consoleOf(t, {
    "main.js": 'import { b } from "./base/b.js";\nimport { a } from "./a.js";\n\n/**\n * Begins.\n */\nb(a);\n',
    "a.js":
      'import {\n  b,\n} from "./base/b.js";\n\n// A number, as in import { x } from "./none.js";\nexport const a = 1 *\n  b(2); // not alone\n/** @type {a} */ (b).c();\n',
    "base/b.js": "/** The same. */\nexport function b(c) {\n  return c;\n}\n",
    "unused.js": "unused();\n",
    "style/console.css": '@import "./a.css";\n@import "./b.css";\n',
    "style/a.css": "/* All. */\n* {\n  margin: 0;\n}\n",
    "style/b.css": "p {\n  & a {\n    color: red; /* loud */\n  }\n}\n",
  });
  const assets = await readConsole(folder);
  const script = "function b(c) {\nreturn c;\n}\nconst a = 1 *\nb(2); // not alone\n(b).c();\nb(a);\n";
  assert.equal(String(assets.get("/console.js")?.content), script);
  const style = "* {\nmargin: 0;\n}\np {\n& a {\ncolor: red; /* loud */\n}\n}\n";
  assert.equal(String(assets.get("/console.css")?.content), style);
  assert.equal(assets.has("/a.js"), false);
});

test("T-22 the console is found wherever the process stands", async (t) => {
  const before = process.cwd();
  t.after(() => process.chdir(before));
  process.chdir(temporaryFolder(t));
  assert.ok((await readConsole()).has("/docs/"));
});

test("a file that is missing, of an unknown kind, or a link, is refused by name rather than served", async (t) => {
  const lacking = consoleOf(t, { "main.js": 'import { a } from "./base/a.js";\n' });
  await assert.rejects(readConsole(lacking), { message: "Cannot serve the console: base/a.js is not there" });
  const strange = consoleOf(t, { "page.exe": "" });
  await assert.rejects(readConsole(strange), { message: `Cannot serve ${strange}/page.exe: unknown kind of file` });
  const linked = consoleOf(t, {});
  symlinkSync("/etc/passwd", path.join(linked, "page.txt"));
  await assert.rejects(readConsole(linked), /page.txt: a symbolic link is not allowed/);
});

import assert from "node:assert/strict";
import { globSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { type AnyNode, parse } from "acorn";
import { PROGRAM_ROOT } from "../../lib/core/self.ts";
import { readConsole } from "../../lib/server/console-files.ts";
import { ROUTES } from "../../lib/server/routes/table.ts";
import { lineAt } from "../helpers/imports.ts";

const UI = path.join(PROGRAM_ROOT, "ui");
const files = readdirSync(UI, { recursive: true, encoding: "utf8" });
const read = (file: string) => readFileSync(path.join(UI, file), "utf8");
const scripts = files.filter((file) => file.endsWith(".js"));
const sheets = files.filter((file) => file.endsWith(".css"));
const pages = files.filter((file) => file.endsWith(".html"));

const assets = await readConsole();
const sent = (name: string) => String(assets.get(name)?.content);

test("T-60 pages hold no script, style or listener of their own: the content security policy refuses them", () => {
  assert.ok(pages.length > 0);
  for (const page of pages) {
    const html = read(page);
    assert.doesNotMatch(html, /<style|\sstyle=|\son\w+=|javascript:/i, page);
    for (const [tag, text] of html.matchAll(/<script\b[^>]*>([\s\S]*?)<\/script>/gi)) {
      assert.match(tag, /^<script type="module"(?: blocking="render")? src="\/[\w./-]+\.js">/, page);
      assert.equal(text, "", page);
    }
  }
});

test("CP-002 everything that pages, styles and scripts refer to is a file of the console", () => {
  const answered = ROUTES.filter(({ method }) => method === "GET").map((route) => route.path);
  const folders = pages.map((page) => `/${page.replace(/index\.html$/, "")}`);
  const joined = ["/console.css", "/console.js", "/docs/console.css", "/docs/console.js"];
  const known = new Set([...folders, ...answered, ...joined, ...files.map((file) => `/${file}`)]);
  for (const page of pages)
    for (const [, target] of read(page).matchAll(/\s(?:src|href)="([^"#]+)"/g))
      assert.ok(known.has(target as string), `${page} refers to ${target}`);
  for (const script of scripts)
    for (const [, target] of read(script).matchAll(/\bfrom "([^"]+)"|\bimport\("([^"]+)"\)/g))
      assert.ok(known.has(path.posix.join("/", path.dirname(script), target ?? "")), `${script} imports ${target}`);
  for (const [, target] of read("style/console.css").matchAll(/@import "\.\/([^"]+)"/g))
    assert.ok(sheets.includes(`style/${target}`));
  for (const sheet of sheets) assert.doesNotMatch(read(sheet), sheet === "style/console.css" ? /url\(/ : /url\(|@import/, sheet);
});

test("CP-432 both pages load one script and one sheet", () => {
  for (const page of pages) {
    const loaded = [...read(page).matchAll(/<(?:script|link rel="(?!icon))[^>]*(?:src|href)="([^"]+)"/g)].map(([, name]) => name);
    const folder = page.startsWith("docs/") ? "/docs" : "";
    assert.deepEqual(loaded, [`${folder}/console.css`, `${folder}/console.js`], page);
  }
});

test("CP-432 the joined script has the statements of all modules, and the joined sheet all rules", () => {
  // A name that two modules define does not parse.
  const joined = new Set(statementsOf(sent("/console.js")).map(meaningOf));
  const lost = scripts.flatMap((script) =>
    statementsOf(read(script))
      .filter((statement) => !joined.delete(meaningOf(statement)))
      .map(({ start }) => `${script}:${lineAt(read(script), start)}`),
  );
  assert.deepEqual([lost, joined.size], [[], 0]);
  const rules = (text: string) =>
    text
      .replace(/\/\*.*?\*\/|@import[^\n]*/gs, "")
      .split(/\s+/)
      .filter(Boolean)
      .sort();
  assert.deepEqual(rules(sent("/console.css")), rules(sheets.map(read).join("\n")));
});

test("CP-432 a name of the top level means the same in all scripts, and hides nothing of the browser", () => {
  for (const script of scripts)
    assert.doesNotMatch(read(script), /^import (?!\{)|^import \{[^}]*\bas\b|\bimport\((?!")/m, script);
  const [dom = ""] = globSync(path.join(PROGRAM_ROOT, "node_modules/@typescript/*/lib/lib.dom.d.ts"));
  const ofBrowser = new Set([...readFileSync(dom, "utf8").matchAll(/^declare (?:var|function) (\w+)/gm)].map(([, name]) => name));
  assert.ok(ofBrowser.has("open"));
  const names = statementsOf(sent("/console.js")).flatMap(namesOf);
  assert.ok(names.includes("patch"));
  assert.deepEqual(
    names.filter((name) => ofBrowser.has(name)),
    [],
  );
});

/** The statements of a script without its imports, and of exports what they export. */
function statementsOf(text: string): AnyNode[] {
  const { body } = parse(text, { ecmaVersion: "latest", sourceType: "module" });
  const own = body.filter(({ type }) => type !== "ImportDeclaration");
  return own.map((one) => (one.type === "ExportNamedDeclaration" && one.declaration) || one);
}

/** A statement without its place in the text. */
function meaningOf(statement: AnyNode): string {
  return JSON.stringify(statement, (key, value) => (key === "start" || key === "end" ? undefined : value));
}

/** The names that a statement declares. */
function namesOf(node: AnyNode): string[] {
  if (node.type === "Identifier") return [node.name];
  if (node.type === "VariableDeclaration") return node.declarations.flatMap(({ id }) => namesOf(id));
  if (node.type === "ArrayPattern") return node.elements.flatMap((one) => (one ? namesOf(one) : []));
  if (node.type === "ObjectPattern") return node.properties.flatMap((one) => namesOf("value" in one ? one.value : one.argument));
  return "id" in node && node.id ? namesOf(node.id) : [];
}

test("text from the server is never read as HTML or code", () => {
  const html =
    /\b(?:inner|outer)HTML\b|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|\beval\b|new Function|setHTML/;
  for (const script of scripts) assert.doesNotMatch(read(script), html, script);
});

test("CP-190 nothing but preferences is stored in the browser, by the one module for them", () => {
  for (const script of scripts) assert.doesNotMatch(read(script), /indexedDB|document\.cookie|caches\b/, script);
  const storing = scripts.filter((script) => /(local|session)Storage/.test(read(script)));
  assert.deepEqual(storing, ["base/preferences.js"]);
  const names = scripts.flatMap((script) => [...read(script).matchAll(/\bprefer\("(\w+)"/g)]);
  for (const [, name] of names) assert.match(name as string, /^(colours|dismissed|keys|letters|log|tab)$/);
});

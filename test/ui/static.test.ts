import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";

import { PROGRAM_ROOT } from "../../lib/core/self.ts";
import { ROUTES } from "../../lib/server/routes/table.ts";

const UI = path.join(PROGRAM_ROOT, "ui");
const files = readdirSync(UI, { recursive: true, encoding: "utf8" });
const read = (file: string) => readFileSync(path.join(UI, file), "utf8");
const scripts = files.filter((file) => file.endsWith(".js"));
const pages = files.filter((file) => file.endsWith(".html"));

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
  const known = new Set([...folders, ...answered, ...files.map((file) => `/${file}`)]);
  for (const page of pages)
    for (const [, target] of read(page).matchAll(/\s(?:src|href)="([^"#]+)"/g))
      assert.ok(known.has(target as string), `${page} refers to ${target}`);
  for (const script of scripts)
    for (const [, target] of read(script).matchAll(/\bfrom "([^"]+)"|\bimport\("([^"]+)"\)/g))
      assert.ok(known.has(path.posix.join("/", path.dirname(script), target ?? "")), `${script} imports ${target}`);
  for (const style of files.filter((file) => file.endsWith(".css"))) assert.doesNotMatch(read(style), /url\(|@import/, style);
});

test("CP-432 the page names every module of the first view, so that the browser asks for all of them at once", () => {
  const page = read("index.html");
  const named = (pattern: RegExp) => [...page.matchAll(pattern)].map(([, name]) => name as string);
  const entries = named(/<script type="module"[^>]* src="\/([^"]+)"/g);
  const needed = new Set(entries);
  for (const script of needed)
    for (const [, target = ""] of read(script).matchAll(/(?:\bfrom|^import) "(\.[^"]+)"/gm))
      needed.add(path.posix.join(path.posix.dirname(script), target));
  const preloaded = named(/<link rel="modulepreload" href="\/([^"]+)"/g);
  assert.deepEqual(preloaded.sort(), [...needed].filter((script) => !entries.includes(script)).sort());
  assert.ok(preloaded.length > 0);
});

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

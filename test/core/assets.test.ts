import assert from "node:assert/strict";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { loadAssets } from "../../lib/core/self.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

test("all files are listed by the path they are served at, with their media types", async (t) => {
  const folder = temporaryFolder(t);
  mkdirSync(path.join(folder, "docs"));
  for (const name of ["index.html", "app.js", "style.css", "docs/index.html"]) writeFileSync(path.join(folder, name), name);
  const assets = await loadAssets(folder);
  assert.deepEqual([...assets].map(([name, { type, content }]) => [name, type.split(";")[0], String(content)]).sort(), [
    ["/", "text/html", "index.html"],
    ["/app.js", "text/javascript", "app.js"],
    ["/docs", "text/html", "docs/index.html"],
    ["/docs/", "text/html", "docs/index.html"],
    ["/docs/index.html", "text/html", "docs/index.html"],
    ["/index.html", "text/html", "index.html"],
    ["/style.css", "text/css", "style.css"],
  ]);
});

test("T-22 the console is found wherever the process stands", async (t) => {
  const before = process.cwd();
  t.after(() => process.chdir(before));
  process.chdir(temporaryFolder(t));
  assert.ok((await loadAssets()).has("/docs/"));
});

test("a folder that is missing has no files", async (t) => {
  assert.equal((await loadAssets(path.join(temporaryFolder(t), "missing"))).size, 0);
});

test("a file of an unknown kind, or a link, is refused by name rather than served", async (t) => {
  const folder = temporaryFolder(t);
  writeFileSync(path.join(folder, "page.exe"), "");
  await assert.rejects(loadAssets(folder), { message: `Cannot serve ${folder}/page.exe: unknown kind of file` });
  const other = temporaryFolder(t);
  symlinkSync("/etc/passwd", path.join(other, "page.txt"));
  await assert.rejects(loadAssets(other), /page.txt: a symbolic link is not allowed/);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { isFull, isLocked, placed, sqliteCode, systemSentence } from "../../lib/core/errors.ts";

function failed(fields: Record<string, unknown>): Error {
  return Object.assign(new Error("as the system says it"), fields);
}

test("an error of the system that people meet says what is the matter, where, and what to do", () => {
  const cases: [Record<string, unknown>, string | undefined][] = [
    [{ code: "EACCES", syscall: "mkdir", path: "/b" }, "permission denied (/b): run ops as the owner, or change the rights"],
    [{ code: "EROFS", syscall: "mkdir", path: "/b" }, "the file system is read-only (/b): mount it writable"],
    [{ code: "ENOSPC", syscall: "write" }, "the disk is full (write): make room there"],
    [{ code: "ENOSPC", syscall: "copyfile", path: "/a", dest: "/b" }, "the disk is full (/b): make room there"],
    [
      { code: "EACCES", syscall: "copyfile", path: "/a", dest: "/b" },
      "permission denied (/a): run ops as the owner, or change the rights",
    ],
    [{ code: "EDQUOT" }, "the disk quota is used up: make room there"],
    [{ code: "EMFILE" }, "the process has reached its limit of open files: raise the limit (ulimit -n)"],
    [{ code: "ENFILE" }, "the machine has reached its limit of open files: raise fs.file-max"],
    [{ code: "EPERM", syscall: "link", path: "/b" }, "no hard link can be made there (/b): use a file system that has them"],
    [{ code: "EPERM", syscall: "open", path: "/b" }, undefined],
    [{ errcode: 8 }, "permission denied: run ops as the owner, or change the rights"],
    [{ errcode: 13 }, "the disk is full: make room there"],
    [{ errcode: 12 }, undefined],
    [{}, undefined],
  ];
  for (const [fields, sentence] of cases) assert.equal(systemSentence(failed(fields)), sentence);
  assert.equal(systemSentence("EROFS"), undefined);
  assert.equal(systemSentence(undefined), undefined);
});

test("an error that names no file gets the name of the one that was written, and no other error is changed", () => {
  const sentence = (fields: Record<string, unknown>) => systemSentence(placed(failed(fields), "/b"));
  assert.equal(sentence({ code: "ENOSPC", syscall: "write" }), "the disk is full (/b): make room there");
  assert.equal(sentence({ errcode: 13 }), "the disk is full (/b): make room there");
  assert.equal(sentence({ code: "EROFS", syscall: "open", path: "/a" }), "the file system is read-only (/a): mount it writable");
  assert.deepEqual({ ...(placed(failed({ code: "ENOENT" }), "/b") as Error) }, { code: "ENOENT" });
  assert.equal(placed("text", "/b"), "text");
});

test("there is no room left on a disk, in a quota or in a database", () => {
  const full = [{ code: "ENOSPC" }, { code: "EDQUOT" }, { errcode: 13 }, { code: "ENOENT" }, { errcode: 10 }];
  assert.deepEqual(
    full.map((fields) => isFull(failed(fields))),
    [true, true, true, false, false],
  );
});

test("a locked database is told from any other, by extended codes too", () => {
  const locked = [5, 6, 5 | (1 << 8), 6 | (1 << 8), 5 | (2 << 8)];
  for (const errcode of locked) {
    assert.equal(isLocked(failed({ errcode })), true, String(errcode));
    assert.match(String(systemSentence(failed({ errcode }))), /^the bucket's database is busy; try again/);
  }
  for (const errcode of [0, 4, 7, 11, 13]) assert.equal(isLocked(failed({ errcode })), false, String(errcode));
  assert.deepEqual([sqliteCode(failed({ errcode: 261 })), sqliteCode(failed({})), sqliteCode(null)], [5, 0, 0]);
});

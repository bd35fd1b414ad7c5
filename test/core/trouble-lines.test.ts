import assert from "node:assert/strict";
import { test } from "node:test";
import { isClosing, reasonLine, TROUBLE_HINT, tellsTrouble } from "../../lib/core/trouble-lines.ts";

const TROUBLE = [
  "error: cannot open /etc/x",
  "ERROR bad",
  "[Error] it broke",
  "TypeError: x is not a function",
  "java.io.IOException: broken pipe",
  "Traceback (most recent call last):",
  "FATAL could not open data directory: No space left on device",
  "panic: runtime error: index out of range",
  "bash: line 1: foo: command not found",
  "Permission denied (publickey).",
  "dial tcp 10.0.0.7:80: connect: connection refused",
  "connect ECONNREFUSED 127.0.0.1:9200",
  "cat: x: No such file or directory",
  "E: Unable to locate package x: unable to go on",
  "Job for nginx.service failed because the control process exited",
  "Killed: out of memory",
  "Segmentation fault (core dumped)",
  "2 errors, 0 warnings",
  "errors=3",
  "fatal: no space left",
  "error: no such host",
  "error: null pointer",
  "error=0.5 above the limit",
  "0 failed, 1 error",
];

const NONE = [
  "0 errors, 0 failed",
  "no errors found",
  "finished without any errors",
  'level=info error=0 msg="all well"',
  '{"error": null, "status": "ok"}',
  "failed=0 unreachable_hosts=0",
  "Failures: 0, Errors: 0",
  "make: *** [Makefile:3: restart] Error 1",
  "/usr/bin/make[2]: *** [all] Error 2",
  "terrors of the deep",
  "writes to error_log, pre-failover",
  "the mirror is in sync",
  "refusedly",
  "",
  "listening on :80",
  'errors="none" duration=3',
];

for (const line of TROUBLE)
  test(`tells of trouble: ${line}`, () => {
    assert.equal(tellsTrouble(line), true);
    TROUBLE_HINT.lastIndex = 0;
    assert.ok(TROUBLE_HINT.test(line), "and can be found by a hint");
  });

for (const line of NONE) test(`tells of no trouble: ${line}`, () => assert.equal(tellsTrouble(line), false));

test("the closing lines of make are told from all others", () => {
  for (const line of ["make: *** [Makefile:3: a] Error 1", "make[1]: *** No rule to make target 'x'.", "/usr/bin/make: *** x"])
    assert.ok(isClosing(line), line);
  for (const line of ["make: Entering directory '/'", "x make: *** y", "remake: ** x", " make: *** x"])
    assert.ok(!isClosing(line), line);
});

test("the reason is the last trouble on stderr, else the last trouble, else the last line that is not make's or a trace's", () => {
  const reason = (...lines: [string, string?][]) => reasonLine(lines.map(([text, stream]) => ({ text, stream })))?.text;
  assert.equal(
    reason(["error: a", "stderr"], ["error: b", "stdout"], ["c", "stderr"], ["make: *** x Error 1", "stderr"]),
    "error: a",
  );
  assert.equal(reason(["error: a", "stdout"], ["error: b", "stdout"], ["c", "stderr"]), "error: b");
  assert.equal(reason(["a"], ["b"], ["make: *** [x] Error 1"]), "b");
  assert.equal(reason(["TypeError: a"], ["    at fatal (file.js:1:1)"], ["Node.js v24.0.0"]), "TypeError: a");
  assert.equal(reason(["error: at the end at /srv"], ["it looked at /srv"]), "error: at the end at /srv");
  assert.equal(reason(["a"], ["it looked at /srv"]), "it looked at /srv");
  assert.equal(reason(["make: *** [w] Error 1"], ["make: *** [x] Error 1"]), "make: *** [x] Error 1");
  assert.equal(reason(), undefined);
});

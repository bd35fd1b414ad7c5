import assert from "node:assert/strict";
import { test } from "node:test";
import { inOneLine, LastLines, withLines } from "../../../lib/core/plain-text.ts";
import { Deploys, HOSTS } from "../../helpers/deploys.ts";
import { hooksOf } from "../../helpers/hooks.ts";

const [A] = HOSTS;
const asIs = (text: string) => text;

test("the last 20 lines of a program's output are its reason, masked as a whole; make's closing lines only where nothing else was said", () => {
  const said = new LastLines();
  said.add("make: *** No rule to make target 'start'.  Stop.");
  assert.deepEqual(said.shown(asIs), ["make: *** No rule to make target 'start'.  Stop."]);
  for (let at = 1; at <= 100; at++) said.add(`line ${at}`);
  for (const line of ["", "make[1]: *** [Makefile:3: inner] Error 7", "make: *** [Makefile:2: start] Error 2"]) said.add(line);
  const lines = said.shown(asIs);
  assert.deepEqual([lines.length, lines[0], lines.at(-1)], [20, "line 81", "line 100"]);
  const masked = said.shown((text) => text.replace("80\nline 81", "***"));
  assert.equal(masked[0], "line ***", "a secret of several lines that begins before the first one is masked");
  const text = withLines("it failed", lines);
  assert.deepEqual([inOneLine(text), inOneLine("one line")], ["it failed: line 100", "one line"]);
  assert.deepEqual([withLines("a", []), withLines("a", ["b"])], ["a", "a: b"]);
});

/** Prints 30 lines, the last one with a secret, and fails in a make below make. */
const FAILING = `start restart:
	@$(MAKE) inner
inner:
	@for at in $$(seq 29); do echo "step $$at"; done; echo "cannot open port 80: hunter-two-2" >&2; exit 7
`;

test("the reason of a failed target is what its program said last, told once, with command and host", async (t) => {
  const deploys = await Deploys.make(t);
  const { context } = deploys.bucket;
  deploys.bucket.context = (...given) => {
    const made = context(...given);
    made.log.redactor.add("hunter-two-2");
    return made;
  };
  await deploys.build({ web: { files: { Makefile: FAILING } } }, { hosts: [A] });
  const { error, jobs } = await deploys.deploy();
  const what = `\`make start\` of job web on ${A} failed: exit code 2:`;
  assert.equal(
    error?.message,
    `the deploy is not complete: web: job web failed on 1 worker: ${A}: ${what} cannot open port 80: ***`,
  );
  const reason = jobs[0]?.allocations[0]?.error ?? "";
  const lines = reason.split("\n");
  assert.equal(lines[0], what);
  assert.deepEqual([lines.length, lines[1], lines.at(-1)], [21, "step 11", "cannot open port 80: ***"]);
  assert.doesNotMatch(reason, /\*\*\* \[/, "make's closing lines are left out");
  assert.equal(JSON.stringify(jobs).split("step 20").length - 1, 1, "the lines are in the result once");
});

test("the reason of a failed hook is the end of its traceback", async (t) => {
  const deploys = await Deploys.make(t);
  const script = 'print("on its way")\n{}["key"]\n';
  const web = { manifest: hooksOf({ act: ["job_control"] }), files: { "_hooks/act.py": script } };
  await deploys.build({ web }, { hosts: [A] });
  const { error, jobs } = await deploys.deploy();
  assert.match(error?.message ?? "", /hook act \(job_control\) of job web failed on 1 worker: .+: KeyError: 'key'$/);
  const lines = (jobs[0]?.allocations[0]?.error ?? "").split("\n");
  assert.deepEqual(
    [lines[0], lines[1], lines.at(-1)],
    ["hook act: exit code 1:", "Traceback (most recent call last):", "KeyError: 'key'"],
  );
});

test("the reason of a failed command probe is what the command said last", async (t) => {
  const deploys = await Deploys.make(t);
  const command = "for at in 1 2 3; do echo said $at; done; exit 4";
  const health_check = { checks: [{ type: "ssh", command }], wait: { attempts: 1 } };
  await deploys.build({ web: { manifest: { health_check } } }, { hosts: [A] });
  const { error, jobs } = await deploys.deploy();
  assert.match(error?.message ?? "", /: command on 127\.0\.0\.1: exit code 4: said 3$/);
  assert.equal(jobs[0]?.allocations[0]?.error, `${A} after 1 attempt: command on ${A}: exit code 4:\nsaid 1\nsaid 2\nsaid 3`);
});

import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { askedOnTerminal } from "../../../lib/cli/base/ask.ts";
import { liveLines, liveView } from "../../../lib/cli/bucket/output.ts";
import { Launcher } from "../../../lib/core/spawn.ts";
import { NO_DEPLOY, type Progress } from "../../../lib/run/progress.ts";
import { PROGRAM } from "../../../scripts/local-server.ts";
import { Deploys, HOSTS } from "../../helpers/deploys.ts";

const NOW = Date.parse("2026-01-01T00:01:00Z");
const wait = (on: string, since: number, limit: number | null) => ({
  on,
  since: new Date(NOW - since * 1000).toISOString(),
  until: limit === null ? null : new Date(NOW + (limit - since) * 1000).toISOString(),
  reason: "other" as const,
  job: null,
  worker: null,
  detail: on,
  more: 0,
});

const PROGRESS: Progress = {
  ...NO_DEPLOY,
  phase: "wave 1: roll out",
  done: 2,
  total: 5,
  rollouts: [
    { job: "web", action: "restart", batch: 3, batches: 5, gate: "", workers: 10, done: 6, running: 2, failed: 1, hosts: [] },
  ],
  cancel: null,
  waiting: [wait("10.0.0.7: connecting", 4, 120), wait("web@10.0.0.9: hook up", 61, null)],
};

/** What a terminal shows after this text: lines, with cursor up and clear-to-end carried out. */
function screen(text: string): string[] {
  const lines: string[] = [];
  for (const part of text.split(/(\x1b\[\d+A\x1b\[J|\n)/)) {
    const up = /^\x1b\[(\d+)A/.exec(part);
    if (up) lines.splice(lines.length - Number(up[1]));
    else if (part !== "" && part !== "\n") lines.push(part);
  }
  return lines;
}

test("the live lines name waves, batches, workers and every wait with its time and limit", () => {
  assert.deepEqual(liveLines(PROGRESS, NOW), [
    "wave 1: roll out: 2 of 5 done",
    "  web: restart, batch 3 of 5: 6 of 10 workers done, 2 running, 1 failed",
    "  waiting: 10.0.0.7: connecting 4 s of 120 s, web@10.0.0.9: hook up 61 s",
  ]);
  const many = Array.from({ length: 9 }, (_, index) => wait(`w${index}\x1b[2J`, 1, null));
  const cancelled = liveLines({ ...PROGRESS, cancel: { confirmed: 1, total: 2 } }, NOW);
  assert.equal(cancelled[1], "  cancelling: 1 of 2 confirmed");
  assert.match(liveLines({ ...PROGRESS, waiting: many }, NOW).at(-1) ?? "", /w0\\x1b\[2J 1 s, .*, 6 more$/);
});

test("lines are redrawn in place: no line of the log is lost, and none of the view is left", (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  let text = "";
  const view = liveView({
    columns: 30,
    write(part: string) {
      text += part;
    },
  });
  view.update(PROGRESS);
  view.above(() => {
    text += "first\n";
  });
  view.update({ ...PROGRESS, rollouts: [] });
  view.above(() => {
    text += "second\nthird\n";
  });
  const shown = screen(text);
  assert.deepEqual(shown.slice(0, 3), ["first", "second", "third"]);
  assert.equal(shown.length, 5);
  assert.ok(shown.every((line) => line.length < 30));
  view[Symbol.dispose]();
  t.mock.timers.tick(60_000);
  assert.deepEqual(screen(text), ["first", "second", "third"]);
});

test("while a person is asked something, the lines are not drawn over the question", async (t) => {
  let text = "";
  using view = liveView({
    columns: 80,
    write(part: string) {
      text += part;
    },
  });
  const stdin = Object.assign(new PassThrough(), { isTTY: true });
  for (const [name, value] of Object.entries({ stdin, stderr: Object.assign(new PassThrough(), { isTTY: true }) })) {
    const own = Object.getOwnPropertyDescriptor(process, name) as PropertyDescriptor;
    Object.defineProperty(process, name, { value, configurable: true });
    t.after(() => Object.defineProperty(process, name, own));
  }
  const answer = askedOnTerminal("Which? ");
  view.update(PROGRESS);
  assert.equal(text, "");
  stdin.end("this\n");
  assert.equal(await answer, "this");
  view.update(PROGRESS);
  assert.equal(screen(text).length, 3);
});

test("on a terminal a deploy shows where it is and ends with a table; in a pipe neither", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build({ web: {} }, { hosts: [HOSTS[0]] });
  const command = [process.execPath, PROGRAM, "deploy", "--bucket-dir", deploys.bucket.dir].join(" ");
  const shown = await new Launcher(process.env).run(["script", "-qec", command, "/dev/null"], {});
  assert.equal(shown.exitCode, 0, shown.stdout);
  assert.match(shown.stdout, /wave 0: roll out: 0 of 1 done/);
  assert.match(shown.stdout, /job +outcome +actions +workers +seconds\r?\nweb +deployed +1 start +1 changed/);
  const piped = await new Launcher(process.env).run(["sh", "-c", command], {});
  assert.match(piped.stdout, /web: skipped, already promoted/);
  assert.doesNotMatch(piped.stdout + piped.stderr, /\x1b|outcome +actions/);
});

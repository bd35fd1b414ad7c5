import assert from "node:assert/strict";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { CommandPlace, HOST } from "../helpers/hook-commands.ts";
import { until } from "../helpers/temporary.ts";

/** In a command, `step <name>` waits until the test lets it go on. */
const STEP = 'step() { : >"at-$1"; until [ -e "go-$1" ]; do sleep 0.02; done; }; ';

/** A worker over ssh, and a script that runs a command there step by step. */
async function begun(t: TestContext, command: string, settings: { reattachSeconds?: number } = {}) {
  const place = await CommandPlace.make(t, "ssh", { settings });
  const file = (name: string) => path.join(place.folder, name);
  const spools = () => readdirSync(place.folder).filter((name) => name.startsWith(".ops-"));
  const stop = new AbortController();
  const text = `
try:
    done = ops.run_ssh("${HOST}", ${JSON.stringify(STEP + command)}, check=False)
    print(json.dumps([done.returncode, done.stdout, done.stderr]))
except subprocess.TimeoutExpired as error:
    print(json.dumps(["timeout", error.stdout, error.stderr]))`;
  const ended = place.scripts.run("py", text, place.env, { signal: stop.signal });
  return {
    place,
    stop,
    ended,
    spools,
    /** Exit code and outputs, as the script got them. */
    answer: async () => JSON.parse((await ended).stdout) as [number, string, string],
    at: (name: string) => until(`the command to come to ${name}`, () => existsSync(file(`at-${name}`))),
    go: (name: string) => writeFileSync(file(`go-${name}`), ""),
    cut: () => cut(place),
    noSpool: () => until("the spool to be gone", () => spools().length === 0),
  };
}

/** Cuts the connections that are open and waits until nothing of them is left. */
async function cut({ fleet }: CommandPlace): Promise<void> {
  const before = fleet.sessions;
  fleet.cut();
  await until("the sessions to be gone", () => !fleet.sessions.some((pid) => before.includes(pid)));
}

test("HR-028 CP-412 a connection that is cut in mid-line and again does not end the command of a hook", async (t) => {
  const run = await begun(t, "echo one; echo err >&2; printf 'half a '; step first; echo line; step second; seq 3; exit 7");
  for (const step of ["first", "second"]) {
    await run.at(step);
    await run.cut();
    run.go(step);
  }
  assert.deepEqual(await run.answer(), [7, "one\nhalf a line\n1\n2\n3\n", "err\n"]);
  await run.noSpool();
  assert.ok(run.place.fleet.logins >= 2);
});

test("HR-028 CP-412 a connection that is cut between the output and the exit code does not lose the exit code of a hook's command", async (t) => {
  const run = await begun(t, "echo out; step end; echo more >&2; exit 9");
  await run.at("end");
  run.place.fleet.freeze();
  run.go("end");
  await until("the command to have ended", () => run.spools().some((name) => name.endsWith(".code")));
  await run.cut();
  assert.deepEqual(await run.answer(), [9, "out\n", "more\n"]);
  await run.noSpool();
});

test("HR-339 CP-413 a connection that is lost for longer than ssh_reattach_seconds is exit code 255, and says what may go on", async (t) => {
  const run = await begun(t, "echo out; step lost", { reattachSeconds: 1 });
  await run.at("lost");
  await run.place.fleet.sshd.stop();
  const [code, , said] = await run.answer();
  assert.equal(code, 255);
  assert.match(said, /^The connection was lost to worker 127\.0\.0\.2: .*its command may still be running\n$/);
});

test("HR-340 CP-416 a script that is killed while the connection is lost: its command is ended over a new one", async (t) => {
  const run = await begun(t, "step lost");
  await run.at("lost");
  await run.cut();
  run.stop.abort();
  assert.equal((await run.ended).reason, "cancelled");
  await run.place.isEmpty();
});

import assert from "node:assert/strict";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { environmentAs, Launcher } from "../../lib/core/spawn.ts";
import { NEEDS_ROOT, NOBODY } from "../helpers/other-user.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";
import { processesIn } from "../helpers/worker.ts";

const options = { skip: NEEDS_ROOT };
const launcher = () => new Launcher({ PATH: process.env.PATH, HOME: "/srv", XDG_CACHE_HOME: "/srv", OWN: "kept" });

test(
  "a command of another user has the ids and the home of that user, and no right that it could use or get",
  options,
  async () => {
    const script =
      'id -u; id -g; id -G; echo "$HOME $USER $LOGNAME $SHELL $OWN $XDG_CACHE_HOME$OLDPWD."; pwd; grep -E "^(Cap|NoNew)" /proc/self/status';
    const { stdout } = await launcher().run(["sh", "-c", script], { user: NOBODY });
    const lines = ["Inh", "Prm", "Eff", "Bnd", "Amb"].map((name) => `Cap${name}:\t0000000000000000`);
    assert.deepEqual(stdout.trim().split("\n"), [
      ...["65534", "65534", "65534", "/ nobody nobody /bin/sh kept .", "/"],
      ...[...lines, "NoNewPrivs:\t1"],
    ]);
  },
);

test("the other user enters the folder itself: one that is closed to it runs nothing", options, async (t) => {
  const closed = path.join(temporaryFolder(t), "open");
  mkdirSync(closed);
  const { exitCode, stdout, stderr } = await launcher().run(["echo", "ran"], { user: NOBODY, cwd: closed });
  assert.notEqual(exitCode, 0);
  assert.equal(stdout, "");
  assert.match(stderr, /cd/);
});

test("the arguments reach the command as they are, and its exit code and output come back", options, async () => {
  const hostile = ["a b", "$(id)", "'", "-n", "", "ü\n"];
  const script = 'printf "%s|" "$@"; cat; exit 7';
  const done = await launcher().run(["sh", "-c", script, "sh", ...hostile], { user: NOBODY, input: "in" });
  assert.deepEqual([done.exitCode, done.stdout], [7, `${hostile.join("|")}|in`]);
});

test("a cancel ends the whole group of another user's command, which leads it", options, async (t) => {
  const folder = temporaryFolder(t);
  chmodSync(folder, 0o755);
  const stop = new AbortController();
  const own = launcher();
  const script = "trap '' TERM; sleep 600 & sleep 600";
  const running = own.run(["sh", "-c", script], { user: NOBODY, cwd: folder, signal: stop.signal, graceMs: 50 });
  await until("the command and its children", () => processesIn(folder).length === 3);
  assert.equal(own.groups.length, 1);
  stop.abort();
  const { reason, receipt } = await running;
  assert.deepEqual([reason, receipt, processesIn(folder)], ["cancelled", "killed", []]);
});

test("a program that would run as root (setuid) gives another user's command nothing", options, async (t) => {
  const folder = temporaryFolder(t);
  chmodSync(folder, 0o755);
  const program = path.join(folder, "id");
  writeFileSync(program, "");
  const copied = await launcher().run(["sh", "-c", 'cp "$(command -v id)" "$1" && chmod 4755 "$1"', "sh", program]);
  assert.equal(copied.exitCode, 0, copied.stderr);
  const { stdout } = await launcher().run([program, "-u"], { user: NOBODY });
  assert.equal(stdout, "65534\n");
});

test("what is about our user is not in the environment of another one", () => {
  const ours = {
    HOME: "/srv",
    USER: "root",
    TMPDIR: "/srv/tmp",
    SSH_AUTH_SOCK: "/srv/agent",
    XDG_RUNTIME_DIR: "/srv/run",
    MAIL: "/m",
    LOGNAME: "root",
    SHELL: "/bin/zsh",
    PWD: "/srv",
    OLDPWD: "/srv",
    XDG_: "/srv",
    A: "b",
    THE_HOME: "c",
    HOMES: "d",
    U: undefined,
  };
  const theirs = { HOME: "/", USER: "nobody", LOGNAME: "nobody", SHELL: "/bin/sh", A: "b", THE_HOME: "c", HOMES: "d" };
  assert.deepEqual(environmentAs(NOBODY, ours), theirs);
});

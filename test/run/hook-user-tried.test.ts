import assert from "node:assert/strict";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { Failure } from "../../lib/core/errors.ts";
import { selfArguments } from "../../lib/core/self.ts";
import type { CommandOptions, CommandOutcome, Launcher } from "../../lib/core/spawn.ts";
import { hookUserOf } from "../../lib/run/hook-user.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

type Answer = Partial<CommandOutcome> | Failure;

/** Programs that answer so, one after the other, to a server that runs as this user. */
function setUp(t: TestContext, answers: Answer[], uid = 0) {
  t.mock.method(process as Required<typeof process>, "getuid", () => uid);
  const asked: [readonly string[], CommandOptions][] = [];
  const run = async (argv: readonly string[], options: CommandOptions) => {
    asked.push([argv, options]);
    const answer = answers.shift() ?? {};
    if (answer instanceof Failure) throw answer;
    return { reason: "exit", exitCode: 0, signal: null, stdout: "", stderr: "", durationMs: 1, ...answer };
  };
  return { asked, launcher: { run } as unknown as Launcher };
}

const entry = (name: string, home = "/none", uid = "77") => ({ stdout: `${name}:x:${uid}:78:Of hooks:${home}:/bin/sh\n` });

test("CP-660 a user of hooks is looked up, tried with ops and with what must be closed, each within a minute", async (t) => {
  const home = temporaryFolder(t);
  const { asked, launcher } = setUp(t, [entry("hooks", home)]);
  const user = await hookUserOf("hooks", ["/srv/root", "/srv/token"], launcher);
  assert.deepEqual(user, { name: "hooks", uid: 77, gid: 78, home });
  assert.ok(Object.isFrozen(user));
  const [lookup, version, open] = asked;
  const limits = { cwd: "/", timeoutMs: 60_000 };
  assert.deepEqual(lookup, [["getent", "passwd", "hooks"], { ...limits, user: undefined }]);
  assert.deepEqual(version, [selfArguments("version"), { ...limits, user }]);
  assert.deepEqual(
    [open?.[0].slice(0, 2), open?.[0].slice(3), open?.[1]],
    [["sh", "-c"], ["sh", "/srv/root", "/srv/token"], { ...limits, user }],
  );
});

test("CP-660 a home that is no folder is none: scripts of the user begin at /", async (t) => {
  for (const home of ["", path.join(temporaryFolder(t), "none"), "/dev/null", "/dev/null/x"]) {
    const { launcher } = setUp(t, [entry("hooks", home)]);
    assert.equal((await hookUserOf("hooks", [], launcher)).home, "/", home);
  }
});

const NO_USER = "there is no such user here; `useradd --system --user-group` makes one";
const OPT = "install ops where every user can read it, such as /opt/ops";

for (const [what, name, answers, why] of [
  ["has another name than was found", "hooks", [entry("hook")], NO_USER],
  ["is not found", "hooks", [{ exitCode: 2 }], NO_USER],
  ["is root by its number", "toor", [entry("toor", "/", "0")], "that is root: name a user that may do nothing else"],
  [
    "cannot run ops",
    "hooks",
    [entry("hooks"), { exitCode: 1, stderr: "first\nnode: not found\n" }],
    `ops does not run as this user: node: not found; ${OPT}`,
  ],
  [
    "does not get ops to answer",
    "hooks",
    [entry("hooks"), { exitCode: null }],
    `ops does not run as this user: no answer in time; ${OPT}`,
  ],
  [
    "can open a secret",
    "hooks",
    [entry("hooks"), {}, { stdout: "/srv/a b\n/srv/c\n" }],
    "this user can open /srv/a b: chown root: /srv/a b && chmod go= /srv/a b",
  ],
  ["cannot be tried", "hooks", [entry("hooks"), {}, { exitCode: 3 }], "what this user can open cannot be tried: 3"],
  [
    "is not tried in time",
    "hooks",
    [entry("hooks"), {}, { exitCode: null, reason: "timeout" }],
    "what this user can open cannot be tried: timeout",
  ],
  [
    "is looked up by a program that is missing",
    "hooks",
    [new Failure("failed", "Cannot start getent: it is not installed")],
    "Cannot start getent: it is not installed (getent is part of libc-bin, setpriv of util-linux)",
  ],
] as [string, string, Answer[], string][])
  test(`CP-660 a user of hooks that ${what} is refused`, async (t) => {
    const { launcher } = setUp(t, answers);
    await assert.rejects(hookUserOf(name, ["/srv/a b"], launcher), { code: "usage", message: `--hook-user "${name}": ${why}` });
  });

test("CP-660 only names of accounts are looked up, and only by root", async (t) => {
  for (const name of ["a", "_a", "A.b-c_9", "machine$"]) {
    const { launcher } = setUp(t, [entry(name)]);
    assert.equal((await hookUserOf(name, [], launcher)).name, name);
  }
  for (const name of ["", "-a", "9a", ".a", "a$b", "a$$", "a b", "a\n", "a:b"]) {
    const { launcher, asked } = setUp(t, [entry(name)]);
    await assert.rejects(hookUserOf(name, [], launcher), { message: /there is no such user here/ });
    assert.deepEqual(asked, [], JSON.stringify(name));
  }
  const { launcher, asked } = setUp(t, [entry("hooks")], 1_000);
  const message = '--hook-user "hooks": only a server that runs as root can run scripts as another user';
  await assert.rejects(hookUserOf("hooks", [], launcher), { code: "usage", message });
  assert.deepEqual(asked, []);
});

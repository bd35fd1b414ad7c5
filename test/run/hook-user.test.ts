import assert from "node:assert/strict";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { selfArguments } from "../../lib/core/self.ts";
import { Launcher } from "../../lib/core/spawn.ts";
import { hookUserOf } from "../../lib/run/hook-user.ts";
import { serverConfig } from "../../lib/server/config.ts";
import { NEEDS_ROOT, NOBODY } from "../helpers/other-user.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const options = { skip: NEEDS_ROOT };
const TOKEN = "a-token-of-this-very-test";

/** What a start with this user of hooks is refused with. */
const refused = (message: RegExp) => ({ code: "usage", message });

test(
  "CP-660 a user of hooks is taken as the system knows it; it can enter neither the root nor read the secrets",
  options,
  async (t) => {
    const root = path.join(temporaryFolder(t), "root");
    const { hookUser } = await serverConfig({ root, token: TOKEN, "hook-user": "nobody" }, {});
    assert.deepEqual(hookUser, { ...NOBODY });
    const open = path.join(temporaryFolder(t), "open");
    mkdirSync(open);
    const file = path.join(temporaryFolder(t), "token");
    writeFileSync(file, TOKEN);
    for (const place of [open, file]) {
      chmodSync(place, 0o750);
      chmodSync(path.dirname(place), 0o755);
    }
    const flags = { root: open, "token-file": file, "hook-user": "nobody" };
    assert.ok((await serverConfig(flags, {})).hookUser);
    chmodSync(open, 0o755);
    const advice = (place: string) =>
      refused(new RegExp(`^--hook-user "nobody": this user can open ${place}: chown root: ${place} && chmod go= ${place}$`));
    await assert.rejects(serverConfig(flags, {}), advice(open));
    chmodSync(open, 0o711);
    await assert.rejects(serverConfig(flags, {}), advice(open), "to enter is enough");
    await assert.rejects(hookUserOf("nobody", [root, open]), advice(open));
  },
);

for (const [what, name, message] of [
  ["nobody that there is", "no-such-user", /^--hook-user "no-such-user": there is no such user here; /],
  ["a number", "65534", /there is no such user here/],
  ["what is no name", "-h x", /there is no such user here/],
  ["root", "root", /that is root: name a user that may do nothing else$/],
] as const)
  test(`CP-660 a user of hooks that is ${what} is refused`, options, async () => {
    await assert.rejects(hookUserOf(name, []), refused(message));
  });

test("CP-660 where setpriv is missing, or the user cannot run ops, the start is refused", options, async (t) => {
  const folder = temporaryFolder(t);
  writeFileSync(path.join(folder, "getent"), '#!/bin/sh\nexec /usr/bin/getent "$@"\n', { mode: 0o755 });
  const without = new Launcher({ PATH: folder });
  await assert.rejects(
    hookUserOf("nobody", [], without),
    refused(/^--hook-user "nobody": Cannot start setpriv: it is not installed/),
  );
  writeFileSync(
    path.join(folder, "setpriv"),
    "#!/bin/sh\necho 'setpriv: apply bounding set: Operation not permitted' >&2; exit 1\n",
  );
  chmodSync(path.join(folder, "setpriv"), 0o755);
  const message =
    /^--hook-user "nobody": ops does not run as this user: setpriv: apply bounding set: Operation not permitted; install ops/;
  await assert.rejects(hookUserOf("nobody", [], without), refused(message));
});

test("CP-660 a start is refused where it cannot be tried what the user can open", options, async (t) => {
  const folder = temporaryFolder(t);
  const programs = { getent: 'exec /usr/bin/getent "$@"', setpriv: 'case " $* " in *" version "*) exit 0 ;; esac; exit 3' };
  for (const [name, line] of Object.entries(programs))
    writeFileSync(path.join(folder, name), `#!/bin/sh\n${line}\n`, { mode: 0o755 });
  const tried = hookUserOf("nobody", [folder], new Launcher({ PATH: folder }));
  await assert.rejects(tried, refused(/^--hook-user "nobody": what this user can open cannot be tried: 3$/));
});

test("CP-660 only a server that runs as root takes a user of hooks, and ops serve knows no such flag", options, async () => {
  const flags = ["--root", "/srv/no-such-root", "--token", TOKEN, "--hook-user", "nobody"];
  const launcher = new Launcher({ PATH: process.env.PATH });
  const server = await launcher.run(selfArguments("server", ...flags), { user: NOBODY });
  assert.equal(server.exitCode, 2);
  assert.match(server.stderr, /^ops: --hook-user "nobody": only a server that runs as root can run scripts as another user$/m);
  const serve = await launcher.run(selfArguments("serve", ...flags));
  assert.equal(serve.exitCode, 2);
  assert.match(serve.stderr, /--hook-user/);
});

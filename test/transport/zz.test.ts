import { test } from "node:test";
import { SshFleet } from "../helpers/ssh-fleet.ts";
import { syncTree } from "../../lib/transport/sync.ts";
import { numberedTree } from "../helpers/worker.ts";
for (const [shell, useSudo] of [["fish", false], ["zsh", false], ["sh", true], ["dash", true]] as const)
test(`${shell} ${useSudo}`, async (t) => {
  const fleet = await SshFleet.start(t, { login: `echo noise; exec ${shell} -c "$SSH_ORIGINAL_COMMAND"` });
  const one = await fleet.one(t, { useSudo });
  console.log(await one.script("printf '%s|' \"$@\"; id -un; cat", { args: ["a'b\nc", "\\", "!x"], input: Buffer.alloc(300, "z") }));
  console.log(await one.script("printf '%s|' \"$@\"; id -un; cat", { args: ["a'b\nc", "\\", "!x"], input: "hello\n", isShort: true }));
  console.log(await one.script("sleep 100", { timeoutMs: 300 }), fleet.processes);
  const c = new AbortController();
  console.log(await one.script("trap '' TERM; echo x; sleep 100; sleep 100", { signal: c.signal, onLine: () => c.abort() }), fleet.processes);
  console.log((await syncTree(one, numberedTree(1))).changed.length);
  console.log(await one.script("setsid sleep 4 & echo daemon"));
  console.log(await one.script("rm -rf .sync jobs; cd ..; rmdir $OLDPWD; cd ..; rmdir *"));
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { probe } from "../../../lib/transport/ask/probes.ts";
import { SshFleet } from "../../helpers/ssh-fleet.ts";

test("a command's time begins with the command: 10 workers of which 2 are asked at a time are all healthy", async (t) => {
  const hosts = Array.from({ length: 10 }, (_, index) => `127.0.1.${index + 1}`);
  const fleet = await SshFleet.start(t, { hosts });
  const { transports } = await fleet.connect(t, { concurrency: 2 });
  const ask = { type: "ssh", command: "sleep 2", timeoutMs: 5_000 } as const;
  const found = await Promise.all(transports.map((transport) => probe({ ...ask, transport })));
  assert.deepEqual(
    found.map(({ ok, evidence }) => `${ok} ${evidence}`),
    hosts.map((host) => `true command on ${host}: exit code 0`),
  );
  assert.ok(found.every(({ durationMs }) => durationMs < ask.timeoutMs));
});

test("a command that does not end within its time is ended, and that is what the probe says", async (t) => {
  const fleet = await SshFleet.start(t);
  const transport = await fleet.one(t, { concurrency: 1 });
  const found = await probe({ type: "ssh", command: "sleep 300", timeoutMs: 200, transport });
  assert.deepEqual([found.ok, found.evidence], [false, "command on 127.0.0.1: no answer within 0.2 s"]);
  assert.deepEqual([found.isUnreachable, fleet.processes], [undefined, []]);
});

test("a probe over a connection that is lost says that its worker is unreachable", async (t) => {
  const fleet = await SshFleet.start(t);
  const transport = await fleet.one(t);
  await transport.script("true");
  await fleet.sshd.stop();
  fleet.cut();
  const found = await probe({ type: "ssh", command: "true", timeoutMs: 5_000, transport });
  assert.deepEqual([found.ok, found.isUnreachable], [false, true]);
  assert.match(found.evidence, /^command on 127\.0\.0\.1: (Cannot connect|The connection was lost) to worker/);
});

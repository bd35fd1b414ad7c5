import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { remoteJobLogs } from "../../../lib/cli/remote/logs.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { COMMAND } from "../../../scripts/local-server.ts";
import { ops } from "../../helpers/command-line.ts";
import { parsed, printed } from "../../helpers/printed.ts";
import { TOKEN } from "../../helpers/server.ts";
import { until } from "../../helpers/temporary.ts";

const ENTRY = "ts=2026-05-04T12:00:00.250Z level=info run=0190a5e8-0000-7000-8000-000000000001 ops=deploy worker=- msg=x\n";
/** Far more than what pipes and sockets hold. */
const MOST_BYTES = 256 * 1024 * 1024;

/** A server that answers the same line on and on, and what tells how many bytes it got rid of and whether its client has left. */
async function endless(t: TestContext, line: string) {
  const told = { bytes: 0, hasLeft: false };
  const server = createServer((_, response) => {
    const piece = line.repeat(1_000);
    const more = () => {
      let goesOn = true;
      while (goesOn && told.bytes < MOST_BYTES) {
        told.bytes += piece.length;
        goesOn = response.write(piece);
      }
    };
    response.on("drain", more).on("close", () => {
      told.hasLeft = true;
    });
    more();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const start = (...words: string[]) => {
    const where = ["--server", `http://127.0.0.1:${(server.address() as AddressInfo).port}`, "--bucket", uuidV7()];
    const [file, ...before] = COMMAND;
    const env = { ...process.env, OPS_SERVE_TOKEN: TOKEN };
    const child = spawn(file, [...before, "logs", ...words, ...where], { stdio: "pipe", env });
    t.after(() => child.kill("SIGKILL"));
    return child;
  };
  return { told, start };
}

/** `ops logs web -f` of a server that answers each request with the next of these texts, and what it was asked for. */
async function following(t: TestContext, ...answers: string[]) {
  let asked = 0;
  const server = createServer((_, response) => response.end(answers[asked++])).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const where = { address: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, bucket: uuidV7() };
  const unset = { caFile: undefined, folderCa: undefined, tokenFile: undefined, totp: undefined };
  const outer = { ...process.env };
  Object.assign(process.env, { OPS_SERVE_TOKEN: TOKEN });
  t.after(() => {
    process.env = outer;
  });
  const input = parsed({}, ["follow"], ["web"]);
  return async () => {
    const { out, err, answer } = await printed(t, () => remoteJobLogs(input, { ...where, fromFolder: false, ...unset }));
    return { out, err, answer, asked };
  };
}

test("a log that is followed ends with its last line, and is cut where the server tells nothing", async (t) => {
  const whole = await following(t, "asked: w1\nw1 | a\nend: 0\n");
  assert.deepEqual(await whole(), { out: "a\n", err: "", answer: 0, asked: 1 });
  const nothing = await following(t, "");
  await assert.rejects(nothing, { code: "failed", message: "the server's answer was cut" });
});

test("ops logs --run-dir is for runs here", async () => {
  const { code, stderr } = await ops(["logs", "--run-dir", "x", "--server", "https://ops.example"]);
  assert.deepEqual([code, stderr], [2, "ops: --run-dir reads a folder here: give --local with it\n"]);
});

/** Waits until a number has not changed for a second. */
async function standingStill(number: () => number): Promise<number> {
  let [seen, since] = [0, performance.now()];
  await until("the numbers to stand still", () => {
    if (number() !== seen) [seen, since] = [number(), performance.now()];
    return seen > 0 && performance.now() - since > 1_000;
  });
  return seen;
}

for (const words of [[], ["--json"], ["--format", "raw"]])
  test(`ops logs ${words.join(" ")} reads no more than its reader, and ends when nobody reads`, async (t) => {
    const { told, start } = await endless(t, ENTRY);
    const child = start(...words);
    assert.ok((await standingStill(() => told.bytes)) < MOST_BYTES / 4, String(told.bytes));
    child.stdout.destroy();
    await until("the end of the command", () => child.exitCode === 0);
    await until("the server to see that", () => told.hasLeft);
  });

test("ops logs of a job reads no more than its reader, ends when nobody reads, and stops while its reader stands still", async (t) => {
  const line = `10.0.0.7 | ${"x".repeat(100)}\n`;
  const left = await endless(t, line);
  const child = left.start("web", "-f");
  assert.ok((await standingStill(() => left.told.bytes)) < MOST_BYTES / 4);
  child.stdout.destroy();
  await until("the end of the command", () => child.exitCode === 0);
  await until("the server to see that", () => left.told.hasLeft);
  for (const signal of ["SIGTERM", "SIGHUP"] as const) {
    const { told, start } = await endless(t, line);
    const stalled = start("web", "-f");
    await standingStill(() => told.bytes);
    stalled.kill(signal);
    await until("the end of the command", () => stalled.exitCode === 130);
  }
});

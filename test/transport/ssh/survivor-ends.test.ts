import assert from "node:assert/strict";
import { test } from "node:test";
import { type Channel, GroupOutput } from "../../../lib/transport/ssh/channel.ts";
import type { SshLink, StartedChannel } from "../../../lib/transport/ssh/link.ts";
import type { KeptShell } from "../../../lib/transport/ssh/shell.ts";
import { Survivor, settleLeft } from "../../../lib/transport/ssh/survivor.ts";
import { MARK } from "../../helpers/local-shell.ts";
import { until } from "../../helpers/temporary.ts";

/** What a channel that looks for a spooled command brings of it, before it ends with an exit code, if it has one. */
interface Look {
  says?: string;
  code?: number;
}

const say = (output: Pick<GroupOutput, "take">, text: string) => {
  output.take(Buffer.from(text), "stdout");
  output.take(Buffer.from(`${MARK} start\n${MARK} end\n`), "stderr");
};

/** A channel without a worker; `noted` tells of what is done with it. */
function played(noted: string[], name: string, { code }: Look, isClosed: boolean): StartedChannel {
  const output = new GroupOutput(MARK, { onOutput() {} });
  const { promise: closed, resolve } = Promise.withResolvers<number | string>();
  if (isClosed) resolve(code ?? "lost");
  const stdin = {
    write(text: string) {
      noted.push(`${name} gets ${text.trim()}`);
      resolve("lost");
    },
  };
  const channel = { stdin, output, closed, ended: closed.then(() => code), close: async () => void noted.push(`${name} closed`) };
  return { channel: channel as unknown as Channel, mark: MARK, master: {} } as StartedChannel;
}

/** A link over which further channels bring what they find, one after the other. */
function setUp(looks: (Look | "none")[], { says = `${MARK} start 7 boot\nabc`, isLost = true } = {}) {
  const left = [...looks];
  const noted: string[] = [];
  const asked: string[] = [];
  const first = played(noted, "first", {}, isLost);
  first.channel.output.take(Buffer.from(says), "stdout");
  const link = {
    closing: new AbortController().signal,
    async start({ lines }: { lines(mark: string): string }, { onOutput }: { onOutput: GroupOutput["take"] }) {
      asked.push(/set -- '\.ops.*?(?= && eval)/.exec(lines("m").split("\n")[1] ?? "")?.[0] ?? "");
      const look = left.shift() ?? "none";
      if (look === "none") throw new Error("no connection");
      if (look.says !== undefined) say({ take: onOutput }, look.says);
      return played(noted, `look ${asked.length}`, look, look.says === undefined);
    },
    lost: async (_: unknown, rest: string) => new Error(`lost${rest}`),
  } as unknown as SshLink;
  const survivor = new Survivor(link, first, { folder: "/srv/b", name: ".ops-b-run-1" });
  return { survivor, link, noted, asked, output: first.channel.output };
}

test("a command that ends over its first connection is looked for by no other one", async () => {
  const { survivor, output, asked, noted } = setUp([], { isLost: false });
  say(output, `${MARK} end 3\n`);
  assert.equal(await survivor.ended(60), 3);
  await survivor.close();
  assert.deepEqual([asked, noted], [[], ["first gets done", "first closed"]]);
});

const WHOLE = `more${MARK} end 4\n`;

for (const [what, looks, end, asked] of [
  ["goes on over another connection", [{ says: WHOLE }], 4, 1],
  ["is looked for again where that one is lost too", [{}, { says: WHOLE }], 4, 2],
  ["is looked for until a connection opens", ["none", "none", { says: WHOLE }], 4, 3],
  ["has an end that nobody knows", [{ says: `${MARK} end gone\n` }], "lost", 1],
  ["has left no spool", [{ code: 5 }], "lost", 1],
  ["has left no spool, though its group has told of itself", [{ code: 3 }], "lost", 1],
] as const)
  test(`a command whose connection is lost ${what}`, async (t) => {
    // No pause between attempts.
    t.mock.method(Math, "random", () => -1);
    const { survivor, asked: questions, noted } = setUp([...looks]);
    assert.equal(await survivor.ended(60), end);
    assert.equal(questions.length, asked);
    await survivor.close();
    assert.deepEqual(noted.slice(-2), [`look ${asked} gets done`, `look ${asked} closed`]);
  });

test("a new connection asks for what the ones before have not brought, by name and bytes", async () => {
  const { survivor, output, asked } = setUp([{}, { says: WHOLE }], { says: `banner${MARK} start 7 boot\nabc` });
  output.take(Buffer.from(`${MARK} start\nx`), "stderr");
  await survivor.ended(60);
  const bytes = `${MARK} start 7 boot\nabc`.length;
  const wanted = `set -- '.ops-b-run-1' '${bytes}' '${MARK.length + 8}'`;
  assert.deepEqual(asked, [wanted, wanted]);
});

test("a command that was never started, and one whose worker is not reached in time, are lost with their reason", async () => {
  const never = setUp([{ code: 3 }], { says: "banner" });
  await assert.rejects(never.survivor.ended(60), { message: "lost; its command was not started" });
  const late = setUp([]);
  await assert.rejects(late.survivor.ended(0.02), {
    message: "lost, and no new one was opened within 0.02 s; its command may still be running",
  });
});

test("who gives a lost command up looks no further, and keeps no channel that opens too late", async () => {
  const idle = setUp([]);
  const waiting = idle.survivor.ended(600);
  await until("the first attempt", () => idle.asked.length === 1);
  await idle.survivor.close();
  await assert.rejects(waiting, { message: /^lost, and no new one was opened/ });
  const { survivor, link, noted } = setUp([{}]);
  const start = link.start.bind(link);
  link.start = async (...order) => {
    const late = await start(...order);
    await survivor.close();
    return late;
  };
  await assert.rejects(survivor.ended(600), { message: /^lost, and no new one was opened/ });
  assert.deepEqual(noted, ["first gets done", "first closed", "look 1 closed"]);
});

const LINE = `.ops-b-old-1 ${MARK} start 7 boot 9 a label of two`;

/** What is told of a left command, whose group answers so and whose spool brings this. */
async function settled(group: string[], looks: Look[], line = LINE) {
  const { link, noted, asked } = setUp(looks);
  const told: string[] = [];
  const ask = async (_: unknown, __: unknown, ___: unknown, conclude: (end: unknown) => unknown) => {
    const said = group.shift();
    return conclude({ execution: { outcome: () => ({ stdout: said ?? "" }) }, code: 0 });
  };
  const listener = {
    onLine: (worker: string, text: string, stream: string) => void told.push(`${worker} ${stream}: ${text}`),
    onSentence: (text: string) => void told.push(text),
    secrets: { longest: 0 } as never,
  };
  await settleLeft({ link, attendant: { ask } as unknown as KeptShell, worker: "w1", folder: "/srv/b", listener }, line);
  return { told, noted, asked };
}

const HAS_LEFT = "w1: a run that is over has left a label of two; what it printed there:";

for (const [what, group, looks, lines, state] of [
  [
    "has ended",
    ["gone"],
    [{ says: `${MARK} start 7 boot\none\ntwo${MARK} end 3\n` }],
    ["one", "two"],
    "has ended with exit code 3",
  ],
  ["has ended unseen", ["gone"], [{ says: `${MARK} start 7 boot\n${MARK} end gone\n` }], [], "has ended, nobody knows how"],
  ["has ended, and whose spool is gone", ["gone"], [{ code: 5 }], [], "has ended, nobody knows how"],
  [
    "still runs",
    ["running", "gone"],
    [{ says: `${MARK} start 7 boot\n${MARK} end 1\n` }],
    [],
    "was still running: it is stopped",
  ],
  ["cannot be ended", [], [], [], "was still running: it is in an unknown state: the worker is unreachable"],
] as [string, string[], Look[], string[], string][])
  test(`a command of an earlier run that ${what} is told with what it printed`, async () => {
    const { told, noted, asked } = await settled([...group], looks);
    assert.deepEqual(told, [HAS_LEFT, ...lines.map((line) => `w1 stdout: ${line}`), `w1: a label of two ${state}`]);
    assert.equal(asked.length, looks.length);
    assert.deepEqual(noted, looks.length > 0 ? ["look 1 gets done", "look 1 closed"] : []);
  });

test("a line that tells of no left command is passed over", async () => {
  const wrong = [
    LINE.replace("start", "begin"),
    `x ${LINE}`,
    LINE.replace("ops-0", "ops-"),
    LINE.replace(" 7 ", " x "),
    `${MARK}`,
    "",
  ];
  for (const line of wrong) assert.deepEqual((await settled(["gone"], [], line)).told, [], line);
});

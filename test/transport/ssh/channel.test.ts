import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import {
  GroupOutput,
  keepLine,
  loopLines,
  questionLines,
  SHORT_CHARACTERS,
  type ShellScript,
  scriptLines,
  spooledLines,
  type WholeInput,
  withMessage,
} from "../../../lib/transport/ssh/channel.ts";
import { localChannel, MARK } from "../../helpers/local-shell.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";

/** The output of a group, and all that is heard of it, neighbouring parts as one. */
function listening() {
  const heard: string[] = [];
  const output = new GroupOutput(MARK, {
    onOutput(chunk, stream) {
      const last = heard.length - 1;
      if (heard[last]?.startsWith(`${stream}: `)) heard[last] += chunk.toString("latin1");
      else heard.push(`${stream}: ${chunk.toString("latin1")}`);
    },
    onMark: (words, stream) => heard.push(`${stream}! ${words.join(" ")}`),
  });
  return { heard, output };
}

const SAID = `banner\n${MARK} start 7 boot 9 label\nout${MARK} note a b\n\nmore ${MARK.slice(0, 9)} ops-${MARK} end 3\nof a daemon`;

for (const size of [1, 2, 7, 34, SAID.length])
  test(`the output of a group is what comes between its marks, in pieces of ${size} bytes`, async () => {
    const { heard, output } = listening();
    for (let at = 0; at < SAID.length; at += size) output.take(Buffer.from(SAID.slice(at, at + size)), "stdout");
    assert.deepEqual(heard, ["stdout: out", "stdout! note a b", `stdout: \nmore ${MARK.slice(0, 9)} ops-`]);
    assert.deepEqual([output.group, output.exitCode], [{ id: "7", bootId: "boot" }, 3]);
    assert.equal(await output.started, output.group);
    assert.equal(output.messages, "banner\nof a daemon");
    assert.equal(output.bytes("stdout"), SAID.length - "banner\n".length);
    assert.equal(output.bytes("stderr"), 0);
    output.take(Buffer.from(`${MARK} start\nerr${MARK} end\n`), "stderr");
    assert.deepEqual(heard.slice(3), ["stderr: err"]);
    assert.deepEqual([await output.whole, await output.ended], [3, 3]);
  });

test("what is the beginning of a mark is held until it is none, and a mark until its line is whole", () => {
  const { heard, output } = listening();
  const say = (text: string) => output.take(Buffer.from(text, "latin1"), "stdout");
  say(`${MARK} start 1 b\n`);
  say(`a${MARK.slice(0, 35)}`);
  assert.deepEqual(heard, ["stdout: a"]);
  say("x");
  assert.deepEqual(heard, [`stdout: a${MARK.slice(0, 35)}x`]);
  say(`\xff${MARK} note`);
  assert.equal(heard.at(-1), `stdout: a${MARK.slice(0, 35)}x\xff`);
  say(" b\n");
  assert.equal(heard.at(-1), "stdout! note b");
  say(`o${"o".repeat(40)}op`);
  assert.equal(heard.at(-1), `stdout: ${"o".repeat(41)}`);
  say("s");
  assert.equal(heard.at(-1), `stdout: ${"o".repeat(41)}`);
});

test("an end whose code nobody knows is told as such", async () => {
  const { output } = listening();
  output.take(Buffer.from(`${MARK} end gone\n`), "stdout");
  output.take(Buffer.from(`${MARK} end\n`), "stderr");
  assert.ok(Number.isNaN(await output.whole));
});

test("of messages the last 4,000 characters are kept", () => {
  assert.equal(withMessage("a", Buffer.from("b")), "ab");
  assert.equal(withMessage("a", Buffer.from("b".repeat(4_000))), "b".repeat(4_000));
  const { output } = listening();
  output.take(Buffer.from(`${"a".repeat(4_000)}bc`), "stderr");
  assert.equal(output.messages, `${"a".repeat(3_998)}bc`);
});

function script(text: string, more: Partial<ShellScript> = {}): ShellScript {
  return { folder: "/", need: "none", text, args: [], env: {}, ...more };
}

/** Runs lines in a shell of this machine until the group has ended; answers what came of it. */
async function ran(t: TestContext, lines: string, input = "", cwd?: string) {
  const [said, marks] = [{ stdout: "", stderr: "" }, [] as string[]];
  const reader = {
    onOutput(chunk: Buffer, stream: "stdout" | "stderr") {
      said[stream] += chunk;
    },
    onMark: (words: readonly string[]) => void marks.push(words.join(" ")),
  };
  const channel = await localChannel(t, lines + input, reader, cwd);
  const code = await channel.output.whole;
  return { code, ...said, marks, group: channel.output.group, channel };
}

const WORDS = ["", " a  b ", "'", "'\"'", "$(id)", "a\nb\n", "\\", "-n", "ü\t*"];

test("a script gets its words and variables as they are, its folder and its input, and tells its exit code", async (t) => {
  const folder = temporaryFolder(t);
  const text = `printf '<%s>' "$@" "$A" "$_b2"; pwd; head -n 2; printf err >&2; exit 7`;
  const asked = script(text, { folder, args: WORDS, env: { A: "it's\n", _b2: "" } });
  const { code, stdout, stderr, group } = await ran(t, scriptLines(MARK, asked), "in\nput\n");
  const words = [...WORDS, "it's\n", ""].map((word) => `<${word}>`).join("");
  assert.deepEqual([code, stdout, stderr], [7, `${words}${folder}\nin\nput\n`, "err"]);
  assert.match(`${group?.id} ${group?.bootId}`, /^\d+ [0-9a-f-]{36}$/);
});

test("what cannot be said to a shell is refused before anything is sent", () => {
  for (const [asked, message] of [
    [script("a\0b"), "Cannot send a NUL character to a shell"],
    [script("", { args: ["a\0"] }), "Cannot send a NUL character to a shell"],
    [script("", { env: { "A-B": "" } }), 'Cannot use "A-B" as the name of an environment variable'],
    [script("", { env: { "1A": "" } }), 'Cannot use "1A" as the name of an environment variable'],
    [script("", { env: { "A\n": "" } }), 'Cannot use "A\\n" as the name of an environment variable'],
    [script("", { env: { " A": "" } }), 'Cannot use " A" as the name of an environment variable'],
  ] as const)
    assert.throws(() => scriptLines(MARK, asked), { code: "failed", message });
});

test("a folder that is needed is made first, an optional one is not, and one that cannot be used is told", async (t) => {
  const above = temporaryFolder(t);
  const at = async (name: string, need: ShellScript["need"]) => {
    const folder = path.join(above, name);
    const { code, stdout, marks } = await ran(t, scriptLines(MARK, script("pwd; exit 5", { folder, need })));
    return [code, stdout.replaceAll(above, "…"), marks.join("").replaceAll(above, "…")];
  };
  const [code, stdout] = await at("none", "none");
  assert.ok(Number(code) > 0 && code !== 5 && stdout === "");
  assert.deepEqual(await at("optional", "optional"), [5, "/\n", ""]);
  assert.ok(!existsSync(path.join(above, "optional")));
  assert.deepEqual(await at("made/it's", "needed"), [5, "…/made/it's\n", ""]);
  assert.deepEqual(await at("made", "optional"), [5, "…/made\n", ""]);
  chmodSync(path.join(above, "made"), 0o777);
  for (const need of ["needed", "optional"] as const) {
    const [failed, nothing, mark] = await at("made", need);
    assert.deepEqual([failed, nothing], [1, ""]);
    assert.match(String(mark), /^unusable …\/made must be a folder of the user who runs commands there .* 0755 or less$/);
  }
});

test("what other runs have left is told in place of the script, where a run asks for it", async (t) => {
  const folder = path.join(temporaryFolder(t), "b");
  mkdirSync(folder, { mode: 0o755 });
  const [theirs, ours] = [".ops-b-their-1", ".ops-b-our-2"];
  for (const name of [theirs, ours]) writeFileSync(path.join(folder, `${name}.out`), `${name} says\n`);
  const asked = script("echo ran", { folder, need: "needed" });
  const left = await ran(t, scriptLines(MARK, { ...asked, run: "our" }));
  assert.deepEqual([left.code, left.stdout, left.marks], [1, "", [`left ${theirs} ${theirs} says`]]);
  assert.equal((await ran(t, scriptLines(MARK, asked))).stdout, "ran\n");
});

const SPOOL = { name: ".ops-b-run-1", label: "a label", bytes: 1_024 };

test("a command that is spooled leaves both outputs and its code, for its owner alone, until somebody says that all was read", async (t) => {
  const folder = temporaryFolder(t);
  const asked = script(`cat; printf '%s' "$1" >&2; exit 4`, { folder, args: ["err"] });
  const { code, stdout, stderr, channel } = await ran(t, spooledLines(MARK, asked, "in\nput", SPOOL));
  assert.deepEqual([code, stdout, stderr], [4, "in\nput", "err"]);
  const files = ["code", "err", "out"].map((end) => `${SPOOL.name}.${end}`);
  const kept = () => files.map((file) => readFileSync(path.join(folder, file), "latin1"));
  const ends = ["4\n", "end\n", "end 4\n"];
  const areWhole = () => readdirSync(folder).length === 3 && kept().every((text, at) => text.endsWith(ends[at] as string));
  await until("the files", areWhole);
  assert.deepEqual(readdirSync(folder).sort(), files);
  for (const file of files) assert.equal(statSync(path.join(folder, file)).mode & 0o777, 0o600);
  const [exit, err, out] = kept();
  assert.equal(exit, "4\n");
  assert.match(out ?? "", new RegExp(`^${MARK} start \\d+ [0-9a-f-]{36} \\d+ a label\nin\nput${MARK} end 4\n$`));
  assert.equal(err, `${MARK} start\nerr${MARK} end\n`);
  channel.stdin.write("done\n");
  await until("the files to go", () => readdirSync(folder).length === 0);
});

test("a spool has an end, behind which its command goes on; one that is there already starts nothing", async (t) => {
  const folder = temporaryFolder(t);
  const asked = script("head -c 5000 /dev/zero | tr '\\0' x", { folder });
  const { code, stdout, channel } = await ran(t, spooledLines(MARK, asked, "", { ...SPOOL, bytes: 1_025 }));
  assert.deepEqual([code, stdout.length], [0, 5_000]);
  const file = path.join(folder, `${SPOOL.name}.out`);
  // In blocks of 512 bytes.
  await until("the end of the spool", () => statSync(file).size === 1_536);
  const again = await localChannel(t, spooledLines(MARK, script("touch ran", { folder }), "", SPOOL));
  await again.exited;
  assert.deepEqual([again.output.group, existsSync(path.join(folder, "ran"))], [undefined, false]);
  await channel.close();
});

const TEXT = `printf '<%s>' "$@"; cat | wc -c; exit 3`;

for (const [what, input, isInLine] of [
  ["none", "", true],
  ["text", "it's\ntext", true],
  ["text with a NUL", "a\0b", false],
  ["as much text as goes into a line", "x".repeat(SHORT_CHARACTERS), true],
  ["more text", "x".repeat(SHORT_CHARACTERS + 1), false],
  ["bytes", Buffer.from([0xff, 0x00, 0x0a]), false],
] as [string, WholeInput, boolean][])
  test(`a shell that runs lines gives a script its input: ${what}`, async (t) => {
    const question = questionLines(MARK, script("", { args: ["a b"] }), 5, input);
    assert.equal(question.toString("latin1").includes(" head -c "), !isInLine);
    const { heard, output } = listening();
    const { promise: answered, resolve } = Promise.withResolvers<readonly string[]>();
    const onMark = (words: readonly string[], stream: string) => stream === "stdout" && resolve(words);
    const { stdin } = await localChannel(t, loopLines(MARK), {
      onOutput: (chunk, stream) => void heard.push(`${stream}: ${chunk}`),
      onMark,
    });
    stdin.write(keepLine(MARK, 5, TEXT));
    stdin.write(question);
    assert.deepEqual(await answered, ["answer", "3"]);
    assert.equal(heard.join("").replaceAll("stdout: ", ""), `<a b>${Buffer.from(input).length}\n`);
    assert.equal(output.group, undefined);
  });

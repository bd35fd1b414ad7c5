import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { readTar } from "../../../lib/codec/archive/tar-read.ts";
import { checksumOf, type FIELDS, fieldOf, paddingOf, type TarInput, writeTar } from "../../../lib/codec/archive/tar-write.ts";
import { Failure } from "../../../lib/core/errors.ts";
import { Launcher } from "../../../lib/core/spawn.ts";
import { bytesOf } from "../../helpers/sources.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const folder = temporaryFolder();
const launcher = new Launcher(process.env);

type Simple = { path: string; type: string; mode: number; text: string };

/** Names that a careless reader or writer loses: each is a file of its own. */
const NAMES = [
  "plain.txt",
  "empty",
  "with blank and 'single' \"double\" quotes",
  "back\\slash $(touch x) ; * ?",
  "ünïcödé/日本語 🎉.txt",
  `${"n".repeat(100)}`,
  `${"n".repeat(101)}`,
  `${"l".repeat(200)}`,
  `${"d".repeat(90)}/${"e".repeat(90)}/f`,
  `${"d".repeat(155)}/${"f".repeat(100)}`,
  `${"d".repeat(156)}/${"f".repeat(100)}`,
  `${"ä".repeat(60)}/${"ö".repeat(60)}/${"ü".repeat(60)}`,
  `${"x".repeat(95)}/${"y".repeat(4)}/in a folder whose slash is at the limit`,
];

function contentOf(name: string): string {
  return name === "empty" ? "" : `content of ${name}\n`.repeat(40);
}

function inputs(): TarInput[] {
  const folders = new Set(NAMES.flatMap((name) => parentsOf(name)));
  const files = NAMES.map((name) => {
    const bytes = Buffer.from(contentOf(name));
    return { path: name, mode: name === "plain.txt" ? 0o755 : 0o644, size: bytes.length, content: [bytes] };
  });
  return [...[...folders, "empty folder"].map((name) => ({ path: name, mode: 0o755, size: 0 })), ...files];
}

function parentsOf(name: string): string[] {
  const parts = name.split("/").slice(0, -1);
  return parts.map((_, index) => parts.slice(0, index + 1).join("/"));
}

/** The bytes in pieces of `size`: nothing may depend on where chunks end. */
async function* inPieces(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function read(bytes: Uint8Array, pieces = 1 << 20): Promise<Simple[]> {
  const found: Simple[] = [];
  for await (const { path, type, mode, content } of readTar(inPieces(bytes, pieces)))
    found.push({ path, type, mode, text: (await bytesOf(content)).toString() });
  return found;
}

function expected(): Simple[] {
  return inputs().map(({ path, mode, content }) => ({
    path,
    type: content ? "file" : "directory",
    mode,
    text: content ? contentOf(path) : "",
  }));
}

/** Names of a locale that has them: without one bsdtar writes no letters but those of ASCII. */
const LOCALE = { LC_ALL: "C.UTF-8" };

async function tar(args: string[], input?: Uint8Array, program = "tar"): Promise<string> {
  const environment = { ...launcher.environment, ...LOCALE };
  const outcome = await launcher.run([program, ...args], { environment, ...(input && { input }) });
  assert.deepEqual([outcome.exitCode, outcome.stderr], [0, ""], args.join(" "));
  return outcome.stdout;
}

test("what is written is read back the same, wherever the chunks end", async () => {
  const bytes = await bytesOf(writeTar(inputs()));
  for (const pieces of [1 << 20, 512, 1000, 7]) assert.deepEqual(await read(bytes, pieces), expected());
});

test("the same entries give the same bytes, without times and owners", async () => {
  const bytes = await bytesOf(writeTar(inputs()));
  assert.deepEqual(await bytesOf(writeTar(inputs())), bytes);
  const header = bytes.subarray(0, 512);
  for (const field of ["mtime", "uid", "gid"] as const) assert.match(fieldOf(header, field).toString("latin1"), /^0+\0$/);
  assert.equal(header.toString("latin1", 329, 345), "0000000\0".repeat(2), "where ustar has the device numbers");
});

test("only a path that a header cannot hold costs a second one", async () => {
  for (const [name, headers] of [
    ["short", 1],
    ["n".repeat(100), 1],
    [`${"d".repeat(60)}/${"e".repeat(60)}`, 1],
    ["n".repeat(101), 2],
    ["ä", 2],
  ] as const) {
    const bytes = await bytesOf(writeTar([{ path: name, mode: 0o644, size: 0, content: [] }]));
    assert.equal(bytes.length, 512 * (headers === 1 ? 3 : 5), name);
  }
});

for (const program of ["tar", "bsdtar"])
  test(`${program} extracts what is written`, async () => {
    const target = mkdtempSync(path.join(folder, "extract-"));
    await tar(["-x", "-m", "-f", "-", "-C", target], await bytesOf(writeTar(inputs())), program);
    for (const name of NAMES) assert.equal(readFileSync(path.join(target, name), "utf8"), contentOf(name));
    assert.equal(statSync(path.join(target, "plain.txt")).mode & 0o777, 0o755);
    assert.equal(statSync(path.join(target, "empty")).mode & 0o777, 0o644);
    assert.ok(statSync(path.join(target, "empty folder")).isDirectory());
    assert.equal(readdirSync(target, { recursive: true }).length, inputs().length);
  });

for (const [program, format] of [
  ["tar", "ustar"],
  ["tar", "pax"],
  ["tar", "gnu"],
  ["bsdtar", "ustar"],
  ["bsdtar", "pax"],
  ["bsdtar", "gnutar"],
] as const)
  test(`archives of ${program} in its ${format} format are read`, async () => {
    const source = mkdtempSync(path.join(folder, "create-"));
    const names = format === "ustar" ? NAMES.filter((name) => fitsUstar(name)) : NAMES;
    for (const name of names) {
      mkdirSync(path.dirname(path.join(source, name)), { recursive: true });
      writeFileSync(path.join(source, name), contentOf(name));
    }
    const file = path.join(folder, `${program}.${format}.tar`);
    await tar(["-c", "-f", file, `--format=${format}`, "-C", source, ...readdirSync(source)], undefined, program);
    const found = (await read(readFileSync(file))).filter(({ type }) => type === "file");
    const wanted = names.map((name) => [name, contentOf(name)]).sort();
    assert.deepEqual(found.map(({ path, text }) => [path, text]).sort(), wanted);
  });

/** Whether name and prefix of the plain format have room for a path. */
function fitsUstar(name: string): boolean {
  return name.split("/").every((part) => Buffer.byteLength(part) <= 100);
}

test("links, FIFOs and devices are named as what they are", async () => {
  const source = mkdtempSync(path.join(folder, "kinds-"));
  const make = "echo x > file && ln file hard && ln -s file soft && mkfifo pipe";
  assert.equal((await launcher.run(["sh", "-c", make], { cwd: source })).exitCode, 0);
  const bytes = Buffer.from(await tar(["-c", "-C", source, "--sort=name", "file", "hard", "soft", "pipe"]), "utf8");
  const types = (await read(bytes)).map(({ path, type }) => `${path}: ${type}`);
  assert.deepEqual(types, ["file: file", "hard: hard link", "soft: symbolic link", "pipe: FIFO"]);
});

test("content that nobody reads, or not to its end, is stepped over", async () => {
  const bytes = await bytesOf(writeTar(inputs()));
  const seen: string[] = [];
  for await (const entry of readTar(inPieces(bytes, 100))) {
    seen.push(entry.path);
    if (seen.length % 2 === 0) for await (const _ of entry.content) break;
  }
  assert.deepEqual(
    seen,
    inputs().map(({ path }) => path),
  );
});

test("who stops reading closes the source", async () => {
  let closed = false;
  async function* source() {
    try {
      yield* inPieces(await bytesOf(writeTar(inputs())), 512);
    } finally {
      closed = true;
    }
  }
  for await (const _ of readTar(source())) break;
  assert.ok(closed);
});

/** One entry with fields overwritten, its checksum right again, and the end blocks. */
function crafted(changes: Partial<Record<keyof typeof FIELDS, string | Buffer>>, body = Buffer.alloc(0)): Buffer {
  const header = Buffer.alloc(512);
  const fields = { name: "a", mode: "0000644", size: size(body.length), type: "0", magic: "ustar\x0000" };
  for (const [field, value] of Object.entries({ ...fields, ...changes }))
    Buffer.from(value as string).copy(fieldOf(header, field as keyof typeof FIELDS));
  const sum = changes.checksum ?? `${checksumOf(header).toString(8).padStart(6, "0")}\0 `;
  Buffer.from(sum as string).copy(fieldOf(header, "checksum"));
  return Buffer.concat([header, body, Buffer.alloc(paddingOf(body.length))]);
}

function size(bytes: number): string {
  return bytes.toString(8).padStart(11, "0");
}

const END = Buffer.alloc(1024);
const pax = (text: string | Buffer, type = "x") => crafted({ name: "pax", type }, Buffer.from(text as string));
const gnuName = (name: string) => crafted({ name: "././@LongLink", type: "L" }, Buffer.from(name));
const base256 = (hex: string) => Buffer.from(hex.padStart(24, "0").replace(/^0/, "8"), "hex");

const accepted: [string, Buffer[], Partial<Simple>][] = [
  ["an empty prefix", [crafted({})], { path: "a", text: "" }],
  ["a prefix", [crafted({ prefix: "p/q" })], { path: "p/q/a" }],
  ["no prefix in GNU's format", [crafted({ magic: "ustar  \0", prefix: "14000000000" })], { path: "a" }],
  ["a size in base 256", [crafted({ size: base256("3") }, Buffer.from("abc"))], { text: "abc" }],
  ["a size ended by a blank", [crafted({ size: "0000000003 " }, Buffer.from("abc"))], { text: "abc" }],
  ["a pax name", [pax("10 path=b\n"), crafted({})], { path: "b" }],
  ["a pax size", [pax("10 size=3\n"), crafted({ size: size(3) }, Buffer.from("abc"))], { text: "abc" }],
  ["a global comment", [pax("13 comment=x\n", "g"), crafted({})], { path: "a" }],
  [
    "a GNU long target of a link",
    [crafted({ name: "././@LongLink", type: "K" }, Buffer.from("t\0")), crafted({ type: "2" })],
    { path: "a", type: "symbolic link" },
  ],
  ["a GNU long name", [gnuName("long\0"), crafted({})], { path: "long" }],
  ["the type of old archives", [crafted({ type: "\0" })], { type: "file" }],
  ["a directory", [crafted({ type: "5", name: "d/" })], { type: "directory", path: "d" }],
  ["any name, for others to judge", [crafted({ name: "../../etc/passwd" })], { path: "../../etc/passwd" }],
];

for (const [what, blocks, wanted] of accepted)
  test(`${what} is understood`, async () => {
    const [entry, ...others] = await read(Buffer.concat([...blocks, END]));
    assert.deepEqual({ ...entry, ...wanted }, entry);
    assert.deepEqual(others, []);
  });

const refused: [string, Buffer[], RegExp][] = [
  ["an empty stream", [], /^archive entry 1: the archive is cut off before its end blocks$/],
  ["missing end blocks", [crafted({})], /^archive entry 2: the archive is cut off before its end/],
  ["one end block", [crafted({}), Buffer.alloc(512)], /cut off before its second end block/],
  ["a lone zero block", [crafted({}), Buffer.alloc(512), crafted({}), END], /data after the archive's end/],
  ["data after the end", [crafted({}), END, Buffer.from("x")], /data after the archive's end/],
  ["endless padding", [END, Buffer.alloc(1 << 20)], /data after the archive's end/],
  ["a cut header", [crafted({}).subarray(0, 300)], /cut off/],
  ["cut content", [crafted({ size: size(9) }), Buffer.from("x")], /^archive entry 1 \(a\): .*content of 9 bytes$/],
  ["cut padding", [crafted({}, Buffer.from("abc")).subarray(0, 600)], /cut off in its content/],
  ["a wrong checksum", [crafted({ checksum: "0000001\0" }), END], /header is damaged/],
  ["text", [Buffer.from("This is not an archive at all.\n".repeat(40))], /header is damaged or not one/],
  ["an archive without magic", [crafted({ magic: Buffer.alloc(8) }), END], /header is damaged/],
  ["a size with a letter", [crafted({ size: "0000000000x" }), END], /\(a\): its mode or size is not a number/],
  ["a size with a sign", [crafted({ size: "-0000000001" }), END], /not a number/],
  ["an empty size", [crafted({ size: Buffer.alloc(12) }), END], /not a number/],
  ["a size with a digit that is not octal", [crafted({ size: "00000000009" }), END], /not a number/],
  ["a size above 2^53", [crafted({ size: base256("20000000000000") }), END], /not a number/],
  ["a negative size", [crafted({ size: Buffer.alloc(12, 0xff) }), END], /not a number/],
  ["a huge size that is not there", [crafted({ size: base256("1ffffffffffff") }), END], /cut off in its content/],
  ["a name that is not UTF-8", [crafted({ name: Buffer.from([0x61, 0xff]) }), END], /its name is not UTF-8/],
  ["a pax name that is not UTF-8", [pax(Buffer.from("10 path=\xff\n", "latin1")), END], /its name is not UTF-8/],
  ["a sparse file", [pax("22 GNU.sparse.major=1\n"), crafted({}), END], /sparse files are not supported/],
  ["an old sparse file", [crafted({ type: "S" }), END], /its type "S" is not known/],
  ["a symbolic link with content", [crafted({ type: "2" }, Buffer.from("x")), END], /link cannot have content/],
  ["a pax length past its end", [pax("99 path=b\n"), crafted({}), END], /extended header is damaged/],
  ["a pax length of nothing", [pax("0 path=b\n"), crafted({}), END], /extended header is damaged/],
  ["a pax record without =", [pax("7 path\n"), crafted({}), END], /extended header is damaged/],
  ["a pax record without newline", [pax("9 path=b "), crafted({}), END], /extended header is damaged/],
  ["a pax size that is not decimal", [pax("12 size=0x3\n"), crafted({}), END], /its size is not a number/],
  ["a negative pax size", [pax("11 size=-3\n"), crafted({}), END], /its size is not a number/],
  ["a global name", [pax("10 path=b\n", "g"), crafted({}), END], /global extended header cannot name/],
  ["two pax headers", [pax("10 path=b\n"), pax("10 path=c\n"), crafted({}), END], /two extended headers/],
  ["a pax header for nothing", [pax("10 path=b\n"), END], /damaged/],
  ["an extended header of 64 KiB and more", [gnuName("x".repeat(65_537)), END], /at most 65536 bytes/],
  ["an extended header that is cut", [gnuName("x".repeat(600)).subarray(0, 1024)], /cut off in an extended/],
];

for (const [what, blocks, message] of refused)
  test(`CP-219 ${what} is refused`, async () => {
    await assert.rejects(read(Buffer.concat(blocks)), (error) => {
      assert.ok(error instanceof Failure && error.code === "invalid_source");
      assert.match(error.message, message);
      return Array.isArray(error.details);
    });
  });

test("CP-219 an archive cut at any block is refused", async () => {
  const bytes = await bytesOf(writeTar(inputs().slice(0, 12)));
  for (let at = 0; at < bytes.length; at += 512) {
    await assert.rejects(read(bytes.subarray(0, at)), { code: "invalid_source" }, `cut at ${at}`);
    await assert.rejects(read(bytes.subarray(0, at + 100)), { code: "invalid_source" }, `cut at ${at + 100}`);
  }
});

test("an error names the entry with its control characters escaped", async () => {
  const bytes = Buffer.concat([crafted({}), crafted({ name: "b\u001b[2J", type: "Z" }), END]);
  await assert.rejects(read(bytes), { message: 'archive entry 2 (b\\u001b[2J): its type "Z" is not known' });
});

for (const [what, text] of [
  ["longer", "abcd"],
  ["shorter", "ab"],
] as const)
  test(`a content ${what} than its size is the writer's failure`, async () => {
    const entry = { path: "a", mode: 0o644, size: 3, content: [Buffer.from(text)] };
    await assert.rejects(bytesOf(writeTar([entry])), { code: "failed", message: /a: it changed while/ });
  });

test("a file that is too large for a header is refused", async () => {
  const entry = { path: "a", mode: 0o644, size: 8 ** 11, content: [] };
  await assert.rejects(bytesOf(writeTar([entry])), { code: "failed", message: /too large/ });
});

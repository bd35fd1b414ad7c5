import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { loadOpsConf } from "../../../lib/bucket/workspace/settings.ts";
import {
  beginSshKeyChange,
  describeSshKey,
  dropOldSshKey,
  makeSshKey,
  noteLeft,
  removeSshKey,
  sshKeyChange,
  sshKeyFile,
  storeSshKey,
  switchSshKey,
} from "../../../lib/bucket/workspace/ssh-key.ts";
import { Launcher } from "../../../lib/core/spawn.ts";
import { makeKey, publicPart } from "../../../scripts/private-sshd.ts";
import { diskSteps, linesOf } from "../../helpers/disk-record.ts";
import { fingerprintBy } from "../../helpers/sshd.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const ABSENT = { present: false, type: null, fingerprint: null, public_key: null, updated_at: null };

function place(t: TestContext) {
  const folder = temporaryFolder(t);
  const secrets = path.join(folder, "secrets");
  const file = path.join(secrets, "worker.key");
  const launcher = new Launcher(process.env);
  return {
    folder,
    secrets,
    file,
    store: (text: string) => storeSshKey(file, text, launcher),
    describe: () => describeSshKey(file, launcher),
  };
}

for (const [what, options] of [
  ["ed25519", ["-t", "ed25519"]],
  ["ecdsa", ["-t", "ecdsa"]],
  ["rsa in PEM form", ["-t", "rsa", "-b", "2048", "-m", "PEM"]],
  ["ecdsa in PKCS 8 form", ["-t", "ecdsa", "-m", "PKCS8"]],
] as const)
  test(`CP-248 CP-249 a key of ${what} is stored for the owner alone and described without its private part`, async (t) => {
    const { folder, secrets, file, store, describe } = place(t);
    const given = makeKey(folder, "given", ...options);
    await store(readFileSync(given, "utf8"));
    assert.equal(readFileSync(file, "utf8"), readFileSync(given, "utf8"));
    assert.deepEqual([statSync(file).mode & 0o777, statSync(secrets).mode & 0o777], [0o600, 0o700]);
    assert.deepEqual(readdirSync(secrets), ["worker.key"]);
    const { updated_at, ...told } = await describe();
    assert.deepEqual(told, {
      present: true,
      type: publicPart(given).split(" ")[0],
      fingerprint: fingerprintBy(given),
      public_key: publicPart(given),
    });
    assert.equal(updated_at, statSync(file).mtime.toISOString());
  });

for (const [what, change] of [
  ["without its last newline", (text: string) => text.trimEnd()],
  ["with the line ends of Windows", (text: string) => text.replaceAll("\n", "\r\n")],
  ["with blank lines around it", (text: string) => `\n\n${text}\n\n`],
] as const)
  test(`a key ${what} is stored as ssh reads it`, async (t) => {
    const { folder, file, store } = place(t);
    const text = readFileSync(makeKey(folder, "given", "-t", "ed25519"), "utf8");
    await store(change(text));
    assert.equal(readFileSync(file, "utf8"), text);
  });

const encrypted = (...options: string[]) => {
  return (folder: string) => readFileSync(makeKey(folder, "given", ...options, "-N", "secret words"), "utf8");
};
for (const [what, make, message] of [
  ["protected by a passphrase", encrypted("-t", "ed25519"), /is protected by a passphrase/],
  ["in PEM form with a passphrase", encrypted("-t", "rsa", "-b", "2048", "-m", "PEM"), /protected by a passphrase/],
  ["that is a public one", (folder: string) => publicPart(makeKey(folder, "given", "-t", "ed25519")), /is not a private key/],
  ["that is no text at all", () => "\u0000\u0001\u0002", /is not a private key/],
  ["that is empty", () => "  \n", /is not a private key/],
  [
    "that is cut off",
    (folder: string) => readFileSync(makeKey(folder, "given", "-t", "ed25519"), "utf8").slice(0, 200),
    /is not a private key/,
  ],
  [
    "of a type that is not used any more",
    (folder: string) => readFileSync(makeKey(folder, "given", "-t", "dsa"), "utf8"),
    /its type is none of ssh-ed25519, /,
  ],
] as const)
  test(`a key ${what} is refused, and the one before stays`, async (t) => {
    const { folder, secrets, file, store } = place(t);
    const before = readFileSync(makeKey(folder, "before", "-t", "ed25519"), "utf8");
    await store(before);
    const given = make(folder);
    await assert.rejects(store(given), (error: Error & { code: string; details: unknown }) => {
      assert.equal(error.code, "invalid_request");
      assert.match(error.message, message);
      const [told] = error.details as { path: string; message: string }[];
      assert.deepEqual([told?.path, `private_key: ${told?.message}`], ["private_key", error.message]);
      const part = given.slice(40, 80);
      assert.ok(part === "" || !`${error.message}${JSON.stringify(error)}`.includes(part));
      return true;
    });
    assert.equal(readFileSync(file, "utf8"), before);
    assert.deepEqual(readdirSync(secrets), ["worker.key"]);
  });

test("a key that is stored takes the place of what a crash left of one, and of the next key of a change", async (t) => {
  const { folder, secrets, file, store } = place(t);
  const [left, next, given] = ["left", "next", "given"].map((name) =>
    readFileSync(makeKey(folder, name, "-t", "ed25519"), "utf8"),
  );
  mkdirSync(secrets, { mode: 0o700 });
  writeFileSync(path.join(secrets, ".ssh_key.candidate"), left ?? "", { mode: 0o600 });
  await beginSshKeyChange(file, next ?? "");
  await store(given ?? "");
  assert.deepEqual([readdirSync(secrets), readFileSync(file, "utf8")], [["worker.key"], given]);
  assert.equal(await sshKeyChange(file), undefined);
});

test("CP-250 a removed key is gone from the disk, also what a crash left of one; twice is the same as once", async (t) => {
  const { folder, secrets, file, store, describe } = place(t);
  await store(readFileSync(makeKey(folder, "given", "-t", "ed25519"), "utf8"));
  writeFileSync(path.join(secrets, ".ssh_key.candidate"), "half of a key");
  await removeSshKey(file);
  await removeSshKey(file);
  assert.deepEqual(readdirSync(secrets), []);
  assert.deepEqual(await describe(), ABSENT);
});

test("a key that ssh cannot use is there, and nothing can be told about it", async (t) => {
  const { secrets, file, describe } = place(t);
  mkdirSync(secrets);
  writeFileSync(file, "no key", { mode: 0o600 });
  assert.deepEqual({ ...(await describe()), updated_at: null }, { ...ABSENT, present: true });
});

test("a link or a folder in the place of the key is no key, and what it holds is never removed", async (t) => {
  const { folder, secrets, file, describe } = place(t);
  mkdirSync(secrets);
  const elsewhere = makeKey(folder, "elsewhere", "-t", "ed25519");
  symlinkSync(elsewhere, file);
  assert.deepEqual(await describe(), ABSENT);
  await removeSshKey(file);
  assert.equal(spawnSync("test", ["-f", elsewhere]).status, 0);
  mkdirSync(path.join(file, "inside"), { recursive: true });
  assert.deepEqual(await describe(), ABSENT);
  await assert.rejects(removeSshKey(file));
  assert.deepEqual(readdirSync(file), ["inside"]);
});

test("ssh_key of ops.conf names the file, and never the key that seals the secrets", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  const { settings } = await loadOpsConf(layout);
  assert.equal(sshKeyFile(layout, settings), path.join(layout.secrets, "worker.key"));
  writeFileSync(layout.opsConf, 'ssh_key = "kv.key"\n');
  await assert.rejects(loadOpsConf(layout), { code: "ErrInvalidOpsConf", message: /ssh_key: must be another name/ });
});

test("a change of the key goes from the next key over the two keys to the new one alone, and leaves no file", async (t) => {
  const { secrets, file } = place(t);
  mkdirSync(secrets, { mode: 0o700 });
  writeFileSync(file, "old");
  assert.equal(await sshKeyChange(file), undefined);
  await beginSshKeyChange(file, "new");
  const begun = await sshKeyChange(file);
  assert.deepEqual([begun?.isNext, begun?.oldFile, readFileSync(begun?.newFile ?? "", "utf8")], [true, file, "new"]);
  await switchSshKey(file);
  await noteLeft(file, ["w1"]);
  const switched = await sshKeyChange(file);
  assert.deepEqual([switched?.isNext, switched?.newFile, switched?.left], [false, file, ["w1"]]);
  assert.deepEqual(
    [file, switched?.oldFile ?? ""].map((name) => readFileSync(name, "utf8")),
    ["new", "old"],
  );
  await dropOldSshKey(file);
  assert.deepEqual([await sshKeyChange(file), readdirSync(secrets)], [undefined, ["worker.key"]]);
});

test("a key that is made is ed25519, without a passphrase and a comment, and its folder is gone; a cancel ends it", async (t) => {
  const { folder, store, describe } = place(t);
  const made: string[] = [];
  const real = new Launcher(process.env);
  const run: Launcher["run"] = (argv, options) => {
    made.push(path.dirname(String(argv.at(-1))));
    return real.run(argv, options);
  };
  const launcher = { run } as Launcher;
  const text = await makeSshKey(launcher, new AbortController().signal);
  await store(text);
  assert.deepEqual([(await describe()).type, (await describe()).present], ["ssh-ed25519", true]);
  writeFileSync(path.join(folder, "made"), text, { mode: 0o600 });
  const { stdout } = spawnSync("ssh-keygen", ["-l", "-f", path.join(folder, "made")], { encoding: "utf8" });
  assert.match(stdout, /^256 SHA256:\S+ {2}\(ED25519\)\n$/);
  await assert.rejects(makeSshKey(launcher, AbortSignal.abort()), { code: "cancelled" });
  assert.deepEqual([made.length, made.filter((one) => existsSync(one))], [2, []]);
  const failing = { run: async () => ({ exitCode: 3, stderr: " \n" }) } as unknown as Launcher;
  const stop = new AbortController();
  const end = async () => {
    stop.abort();
    return { exitCode: null, stderr: "" };
  };
  const stopped = { run: end } as unknown as Launcher;
  await assert.rejects(makeSshKey(stopped, stop.signal), { code: "cancelled" });
  const message = "ssh-keygen could not make a key: exit code 3";
  await assert.rejects(makeSshKey(failing, new AbortController().signal), { code: "failed", message });
});

test("a change of the key is told from its beginning on, with the machines that may know only the old one", async (t) => {
  const { secrets, file } = place(t);
  mkdirSync(secrets, { mode: 0o700 });
  writeFileSync(file, "old");
  const { since, ...begun } = await beginSshKeyChange(file, "new");
  const next = path.join(secrets, ".ssh_key.next");
  assert.deepEqual(begun, { isNext: true, newFile: next, oldFile: file, left: [] });
  const { since: told, ...found } = (await sshKeyChange(file)) ?? assert.fail();
  assert.deepEqual(found, begun);
  assert.ok(Math.abs(since.getTime() - told.getTime()) < 60_000);
  assert.equal(statSync(next).mode & 0o777, 0o600);
  await switchSshKey(file);
  const old = path.join(secrets, ".ssh_key.old");
  const left = async () => {
    const { since: _, ...rest } = (await sshKeyChange(file)) ?? assert.fail();
    return rest;
  };
  assert.deepEqual(await left(), { isNext: false, newFile: file, oldFile: old, left: [] });
  for (const damaged of ["{", "5", "[1]"]) {
    writeFileSync(path.join(secrets, ".ssh_key.left"), damaged);
    assert.deepEqual((await left()).left, [], damaged);
  }
  await noteLeft(file, ["w1", "w2"]);
  assert.deepEqual((await left()).left, ["w1", "w2"]);
  for (const name of [".ssh_key.candidate", ".ssh_key.next"]) writeFileSync(path.join(secrets, name), "");
  await removeSshKey(file);
  assert.deepEqual(readdirSync(secrets), [], "a removed key takes all of a change along");
});

test("each step of a change of the key, and a removal, is on the disk in the end", async (t) => {
  const { folder, secrets, file, store } = place(t);
  const keys = ["old", "new"].map((name) => readFileSync(makeKey(folder, name, "-t", "ed25519"), "utf8"));
  await store(keys[0] ?? "");
  const told = async (work: () => Promise<unknown>) =>
    linesOf(await diskSteps(secrets, work)).filter((line) => !line.includes(".tmp") || line.startsWith("link"));
  const next = "link ..ssh_key.next.tmp -> .ssh_key.next";
  assert.deepEqual(await told(() => beginSshKeyChange(file, keys[1] ?? "")), [next, "flush ."]);
  assert.deepEqual(await told(() => switchSshKey(file)), [
    ...["link ..ssh_key.old.tmp -> .ssh_key.old", "flush ."],
    ...["rename .ssh_key.next -> worker.key unflushed .ssh_key.next", "flush ."],
  ]);
  assert.deepEqual(await told(() => dropOldSshKey(file)), ["remove .ssh_key.old", "flush ."]);
  assert.deepEqual(await told(() => removeSshKey(file)), ["remove worker.key", "flush ."]);
  await removeSshKey(path.join(folder, "none", "key"));
});

import assert from "node:assert/strict";
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import os from "node:os";
import { Readable } from "node:stream";
import { type TestContext, test } from "node:test";
import { isOwnHost, PeerCheck } from "../../lib/hook/peer.ts";
import type { Connection } from "../../lib/http/listen.ts";
import type { HttpRequest } from "../../lib/http/message.ts";

const ends: Connection = { localAddress: "127.0.0.2", localPort: 8080, remoteAddress: "127.0.0.1", remotePort: 80 };
const OWN = 1234;

/** A line of the kernel's table: the socket of the peer, then that of this server. */
function line(from: string, to: string, uid: number, inode = 99): string {
  return `   7: ${from} ${to} 01 00000000:00000000 00:00000000 00000000 ${String(uid).padStart(5)}        0 ${inode} 1 0 20\n`;
}

/** The tables that each look finds, by their files; without a text there is no such file. Answers what was opened. */
function tables(t: TestContext, ...looks: { tcp?: string; tcp6?: string }[]): unknown[] {
  const opened: unknown[] = [];
  let look = -1;
  const open = t.mock.method(fs, "createReadStream", (file: string, options: object) => {
    opened.push([file, options]);
    const name = file.replace("/proc/net/", "") as "tcp" | "tcp6";
    if (name === "tcp") look++;
    const text = (looks[look] ?? looks.at(-1))?.[name];
    if (text !== undefined) return Readable.from([`  sl  local_address rem_address   st\n${text}`]);
    return new Readable({ read() {} }).destroy(Object.assign(new Error("none"), { code: "ENOENT" }));
  });
  syncBuiltinESMExports();
  t.after(() => {
    open.mock.restore();
    syncBuiltinESMExports();
  });
  return opened;
}

const [FROM, TO] = ["0100007F:0050", "0200007F:1F90"];
const [FROM6, TO6] = [`0000000000000000FFFF0000${FROM}`, `0000000000000000FFFF0000${TO}`];
const NOBODYS = line("0100007F:0051", TO, OWN) + line(TO, FROM, OWN);

for (const [what, looks, alone, isAdmitted] of [
  ["of our user", [{ tcp: NOBODYS + line(FROM, TO, OWN) }], undefined, true],
  ["of our user by an IPv6 socket", [{ tcp: NOBODYS, tcp6: line(FROM6, TO6, OWN) }], undefined, true],
  ["of another user", [{ tcp: line(FROM, TO, 5) }], undefined, false],
  ["of another user by an IPv6 socket", [{ tcp: NOBODYS, tcp6: line(FROM6, TO6, 5) }], undefined, false],
  ["of root", [{ tcp: line(FROM, TO, 0) }], undefined, true],
  ["shown as root's while it is closed", [{ tcp: line(FROM, TO, 0) }, { tcp: line(FROM, TO, 5) }], undefined, false],
  ["of another user, then of root", [{ tcp: line(FROM, TO, 5) }, { tcp: line(FROM, TO, 0) }], undefined, false],
  ["of root where one user alone may call", [{ tcp: line(FROM, TO, 0) }], "alone", false],
  ["of the user who alone may call", [{ tcp: line(FROM, TO, OWN) }], "alone", true],
  ["that no process has open", [{ tcp: line(FROM, TO, OWN, 0) }], undefined, false],
  ["that is in no table", [{ tcp: NOBODYS, tcp6: "" }], undefined, false],
  ["whose line is cut off", [{ tcp: line(FROM, TO, OWN).slice(0, 90) }], undefined, false],
] as const)
  test(`HR-295 a socket ${what} is ${isAdmitted ? "answered" : "refused"}`, async (t) => {
    tables(t, ...looks);
    assert.equal(await new PeerCheck(OWN, alone).admits({ ...ends }), isAdmitted);
  });

test("on a machine that writes numbers the other way round, addresses in the table are the other way round", async (t) => {
  const order = t.mock.method(os, "endianness", () => "BE");
  t.after(() => order.mock.restore());
  for (const found of [
    line("7F000001:0050", "7F000002:1F90", OWN),
    line(`${"0".repeat(20)}FFFF7F000001:0050`, "7F000002:1F90", OWN),
  ]) {
    tables(t, { tcp: found });
    assert.equal(await new PeerCheck(OWN).admits({ ...ends }), true);
  }
});

test("a connection is looked up once, and who comes before a look begins shares it", async (t) => {
  const opened = tables(t, { tcp: line(FROM, TO, OWN) });
  const check = new PeerCheck(OWN);
  const one = { ...ends };
  assert.deepEqual(await Promise.all([check.admits(one), check.admits({ ...ends }), check.admits(one)]), [true, true, true]);
  const options = { encoding: "latin1", end: 16 * 1024 * 1024 - 1 };
  assert.deepEqual(opened, [["/proc/net/tcp", options]]);
  assert.deepEqual([await check.admits(one), opened.length], [true, 1]);
  assert.deepEqual([await check.admits({ ...ends }), opened.length], [true, 2]);
});

test("a request is for this server where it comes over loopback and names its address or localhost", () => {
  const isOwn = (host: string | undefined, peer = "127.0.0.1") =>
    isOwnHost({ peer, headers: { host } } as unknown as HttpRequest, ends);
  assert.deepEqual(
    ["127.0.0.2:8080", "localhost:8080", "LocalHost:8080"].map((host) => isOwn(host)),
    [true, true, true],
  );
  for (const host of ["127.0.0.1:8080", "localhost", "localhost:80", "evil.example:8080", undefined])
    assert.equal(isOwn(host), false, host);
  assert.deepEqual([isOwn("localhost:8080", "127.9.9.9"), isOwn("localhost:8080", "10.127.0.1")], [true, false]);
});

test("a peer without an owner is refused; where the system has no table of sockets, every peer passes", async (t) => {
  const ends = { localAddress: "127.0.0.1", localPort: 1, remoteAddress: "127.0.0.1", remotePort: 2 };
  const admits = () => new PeerCheck().admits({ ...ends } as Connection);
  assert.equal(await admits(), false);
  Object.defineProperty(process, "platform", { value: "darwin" });
  t.after(() => Object.defineProperty(process, "platform", { value: "linux" }));
  assert.equal(await admits(), true);
});

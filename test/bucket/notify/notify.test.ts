import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { Problems, sentenceOf } from "../../../lib/bucket/base/problems.ts";
import { addressProblem, builtNotify, NO_NOTIFY, readNotify, storedNotify } from "../../../lib/bucket/notify/notify.ts";
import { isPublic } from "../../../lib/codec/address.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { isQuiet } from "../../../lib/plan/calendar.ts";
import { schemaErrors } from "../../helpers/schema.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeBucket, makeWorkspace } from "../../helpers/workspace.ts";

const FILE = "workspace/notify.json";
const HOOK = { webhook: "https://hook.example/x" };

async function read(t: TestContext, value: unknown, files: Record<string, string> = {}) {
  const dir = temporaryFolder(t);
  makeWorkspace(dir, { files: { [FILE]: JSON.stringify(value), ...files } });
  const problems = new Problems();
  const { text } = await readNotify(layoutOf(dir), problems);
  return { notify: storedNotify(text), errors: problems.errors.map(sentenceOf) };
}

test("CP-860 notify.json names targets, what is sent to them, and quiet hours", async (t) => {
  const value = {
    $schema: "../.ops/schemas/notify.json",
    targets: {
      slack: { webhook: { secret: "slack" }, body: "slack" },
      pager: { ...HOOK, headers: { "X-Key": "1", Authorization: { secret: "k" } }, sign: { secret: "s" }, private: true },
      mail: { command: ["/usr/sbin/sendmail", "-t"], body: "mail.tpl" },
    },
    send: [{ to: ["slack"] }, { to: ["mail", "pager"], events: ["drift"], after: 3, days: 21 }],
    quiet: [{ from: "22:00", to: "07:00", days: ["fri"], timezone: "Europe/Berlin" }],
  };
  const { notify, errors } = await read(t, value, { "workspace/mail.tpl": "{{ .Subject }}" });
  assert.deepEqual(errors, []);
  assert.deepEqual(schemaErrors("notify", value), []);
  assert.deepEqual(notify.templates, { "mail.tpl": "{{ .Subject }}" });
  assert.deepEqual(notify.quiet, [{ fromMinute: 22 * 60, toMinute: 7 * 60, days: [5], timezone: "Europe/Berlin" }]);
  assert.deepEqual([notify.send[0]?.events.length, notify.send[0]?.after, notify.send[1]?.days], [11, 1, 21]);
  assert.deepEqual(notify.targets.mail?.command, ["/usr/sbin/sendmail", "-t"]);
});

const WRONG: [what: object, error: RegExp][] = [
  [{ target: {} }, /^ErrInvalidNotify: .*: target: is not a known field; did you mean "targets"\?/],
  [{ send: [{ to: ["nope"] }] }, /send\/0\/to\/0: there is no target "nope"/],
  [{ targets: { a: 5 } }, /targets\/a: expected an object, found an integer/],
  [{ quiet: [5] }, /quiet\/0: expected an object, found an integer/],
  [{ targets: { a: {} } }, /targets\/a: expected either webhook or command/],
  [{ targets: { a: { webhook: "http://hook.example/" } } }, /expected an address with https:\/\//],
  [{ targets: { a: { webhook: "https://user:pass@hook.example/" } } }, /a user and a password in an address are not sent/],
  [{ targets: { a: { webhook: "http://127.0.0.1/" } } }, /needs "private": true/],
  [{ targets: { a: { command: ["mail"] } } }, /targets\/a\/command\/0: expected the absolute path/],
  [{ targets: { a: { command: ["/bin/true", "a\nb"] } } }, /targets\/a\/command\/1: expected one line of text/],
  [{ targets: { a: { command: ["/bin/true"], private: true } } }, /go only with a webhook/],
  [{ targets: { a: { ...HOOK, headers: { Host: "x" } } } }, /headers\/Host: is no header that can be set here/],
  [{ targets: { a: { ...HOOK, headers: { "ops-signature": "x" } } } }, /is no header/],
  [{ targets: { a: { ...HOOK, headers: { "X-A": "a\nb" } } } }, /expected one line of text/],
  [{ targets: { a: { ...HOOK, sign: { secret: "a\nb" } } } }, /targets\/a\/sign\/secret: expected one line of text/],
  [{ targets: { a: { ...HOOK, body: "nope" } } }, /expected one of json, slack/],
  [{ targets: { a: { ...HOOK, body: "gone.tpl" } } }, /^ErrInvalidTemplate: workspace\/gone.tpl: is named in notify.json/],
  [
    { targets: { a: { ...HOOK, body: "bad.tpl" } } },
    /^ErrInvalidTemplate: workspace\/bad.tpl: .*no field.*Nope|can't evaluate field Nope/,
  ],
  [
    { targets: Object.fromEntries(Array.from({ length: 51 }, (_, index) => [`t${index}`, HOOK])) },
    /notify\.json: targets: expected at most 50/,
  ],
  [{ quiet: [{ from: "24:00", to: "07:00" }] }, /quiet\/0\/from: expected a time of the day/],
  [{ quiet: [{ from: "07:00", to: "07:00" }] }, /quiet\/0\/to: must differ/],
];

for (const [what, error] of WRONG)
  test(`CP-860 ${JSON.stringify(what)} is refused`, async (t) => {
    const { errors } = await read(t, what, { "workspace/bad.tpl": "{{ .Nope }}" });
    assert.match(errors.join("\n"), error);
    assert.ok(!errors.join().includes("user:pass"));
  });

const some = <T>(count: number, make: (index: number) => T): T[] => Array.from({ length: count }, (_, index) => make(index));
const target = (more: object) => ({ targets: { a: { ...HOOK, ...more } } });
const rule = (more: object) => ({ targets: { a: HOOK }, send: [{ to: ["a"], ...more }] });
const quiet = (more: object) => ({ quiet: [{ from: "22:00", to: "07:00", ...more }] });
const header = (name: string, value = "x") => target({ headers: { [name]: value } });
const isTaken = (file: object) => storedNotify(JSON.stringify({ file, templates: {} })) !== NO_NOTIFY;

test("CP-860 each amount in notify.json goes from its least to its most, and no further", () => {
  const AMOUNTS: [least: number, most: number, file: (amount: number) => object][] = [
    [0, 50, (count) => ({ targets: Object.fromEntries(some(count, (index) => [`t${index}`, HOOK])) })],
    [0, 100, (count) => ({ ...target({}), send: some(count, () => ({ to: ["a"] })) })],
    [0, 20, (count) => ({ quiet: some(count, () => ({ from: "22:00", to: "07:00" })) })],
    [0, 20, (count) => target({ headers: Object.fromEntries(some(count, (index) => [`X-${index}`, ""])) })],
    [1, 50, (count) => ({ targets: { a: { command: some(count, () => "/bin/true") } } })],
    [1, 50, (count) => rule({ to: some(count, () => "a") })],
    [1, 100, (after) => rule({ after })],
    [1, 90, (days) => rule({ days })],
    [0, 2_000, (length) => header("X-A", "x".repeat(length))],
    [1, 100, (length) => header("x".repeat(length))],
    [1, 253, (length) => target({ sign: { secret: "x".repeat(length) } })],
    [1, 253, (length) => ({ targets: { a: { webhook: { secret: "x".repeat(length) } } } })],
  ];
  for (const [least, most, file] of AMOUNTS) {
    for (const amount of [least, most]) assert.ok(isTaken(file(amount)), `${amount}: ${JSON.stringify(file(1))}`);
    for (const amount of [least - 1, most + 1].filter((one) => one >= 0))
      assert.ok(!isTaken(file(amount)), `${amount}: ${JSON.stringify(file(1))}`);
  }
  const unseen = AMOUNTS.filter(([, most, file]) => schemaErrors("notify", file(most + 1)).length === 0);
  assert.deepEqual(
    unseen.map(([, most]) => most),
    [50, 20, 100],
    "a schema sees all but how many targets and headers there are, and their names",
  );
});

test("CP-860 texts of notify.json are of their form from the first to the last character", () => {
  const right = [
    ...["X-Host", "Hosts", "Te-X", "X-Ops-A", "Authorization"].map((name) => header(name)),
    ...["00:00", "19:59", "23:59"].map((from) => quiet({ from })),
    ...["json", "slack", "matrix", "ntfy", "alertmanager", "a.tpl"].map((body) => target({ body })),
  ];
  const wrong = [
    ...["X A", " X", "X:", "", "TE", "Upgrade", "Proxy-X", "Keep-Alive", "OPS-A"].map((name) => header(name)),
    ...[" 22:00", "22:000", "022:00", "22:60", "24:00", "7:00"].map((from) => quiet({ from })),
    ...["a.tpl.txt", "../a.tpl", "tpl", 5].map((body) => target({ body })),
    ...["a\nb", "\u0000a", "a\u0000"].map((secret) => target({ sign: { secret } })),
    ...["a\nb", "\u0000a", "a\u0000"].map((text) => header("X-A", text)),
    { targets: { a: { ...HOOK, command: ["/bin/true"] } } },
    { targets: { a: { command: ["/bin/true"], headers: { "X-A": "x" } } } },
    { targets: { a: { command: ["/bin/true"], sign: { secret: "k" } } } },
    ...[quiet({ timezone: "Mars/Olympus" }), quiet({ days: [] }), rule({ events: [] })],
  ];
  assert.deepEqual([right.filter((file) => !isTaken(file)), wrong.filter(isTaken)], [[], []]);
  const isSeen = (file: object) => schemaErrors("notify", file).length > 0;
  assert.deepEqual([right.filter(isSeen), wrong.slice(9, -6).filter((file) => !isSeen(file))], [[], []]);
});

test("CP-868 an address is of https, or of http on the server's own host, and holds no password", () => {
  const told = (text: string) => addressProblem(text)?.split(" ", 3).join(" ");
  for (const address of [
    "https://a.example/x",
    "https://127.0.0.1/",
    "http://127.0.0.1:8/",
    "http://[::1]/",
    "http://localhost/x",
  ])
    assert.equal(told(address), undefined, address);
  for (const address of ["http://a.example/", "ftp://localhost/", "localhost", "", "http://10.0.0.1/", "file:///x"])
    assert.equal(told(address), "expected an address", address);
  for (const address of ["https://u@a.example/", "https://:p@a.example/", "https://u:p@a.example/", "http://u@localhost/"])
    assert.equal(told(address), "a user and", address);
  assert.ok(isTaken({ targets: { a: { webhook: "http://localhost/", private: true } } }));
  assert.ok(isTaken({ targets: { a: { webhook: "https://127.0.0.1/" } } }));
});

test("CP-860 what a file leaves out has its default, and a file of one target says all of it", () => {
  const {
    targets,
    send,
    quiet: hours,
    templates,
  } = storedNotify(JSON.stringify({ file: { ...rule({}), ...quiet({}) }, templates: { "x.tpl": "y" } }));
  const none = { command: undefined, headers: {}, sign: undefined, body: "json", isPrivate: false };
  assert.deepEqual({ ...targets }, { a: { ...none, webhook: HOOK.webhook } });
  const events = `run_failed gate_failed snapshot_failed allocation_unhealthy worker_unreachable drift certificate_ends
    schedule_missed approval_wanted break_glass_used recovered`.split(/\s+/);
  assert.deepEqual(send, [{ events, to: ["a"], after: 1, days: 14 }]);
  assert.deepEqual(hours, [{ fromMinute: 1_320, toMinute: 420, days: [0, 1, 2, 3, 4, 5, 6], timezone: "UTC" }]);
  assert.deepEqual(templates, { "x.tpl": "y" });
  const named = storedNotify(JSON.stringify({ file: quiet({ days: ["sun", "sat"] }), templates: {} }));
  assert.deepEqual(named.quiet[0]?.days, [0, 6]);
});

test("CP-860 a template may name everything that a message tells, and is told of once where it is wrong", async (t) => {
  const fields = `ID Event At IncidentEvent IncidentID Status OpenedAt OverAt ForgetAt BucketID Project Bucket Subject Text Reason
    Places PlaceCount Job Run`.split(/\s+/);
  const file = { targets: { a: { ...HOOK, body: "own.tpl" }, b: { ...HOOK, body: "own.tpl" } } };
  const told = async (text: string) => (await read(t, file, { "workspace/own.tpl": text })).errors;
  assert.deepEqual(await told(`${fields.map((name) => `{{ json .${name} }}`).join("")}{{ mrkdwn .Text }}`), []);
  const [error = "", ...others] = await told("{{ .Places.x");
  assert.match(error, /^ErrInvalidTemplate: workspace\/own.tpl: /);
  assert.deepEqual(others, []);
  const dir = temporaryFolder(t);
  makeWorkspace(dir, { files: { [FILE]: JSON.stringify(file) } });
  writeFileSync(path.join(dir, "workspace/own.tpl"), Buffer.from([0x61, 0xff]));
  const problems = new Problems();
  await readNotify(layoutOf(dir), problems);
  assert.deepEqual(problems.errors.map(sentenceOf), ["ErrInvalidTemplate: workspace/own.tpl: is not UTF-8 text"]);
});

test("CP-860 what the last build that succeeded has found is in effect, with its templates", async (t) => {
  const spec = (file: object) => ({
    jobs: { web: {} },
    workers: ["10.0.0.1"],
    files: { [FILE]: JSON.stringify(file), "workspace/own.tpl": "{{ .Text }}" },
  });
  const bucket = await makeBucket(t, spec({ targets: { hook: { ...HOOK, body: "own.tpl" } } }));
  await build(bucket.context(), {});
  assert.deepEqual(builtNotify(bucket.db).templates, { "own.tpl": "{{ .Text }}" });
  makeWorkspace(bucket.dir, spec({ targets: { hook: {} } }));
  await assert.rejects(build(bucket.context(), {}), { code: "ErrInvalidNotify" });
  assert.deepEqual(Object.keys(builtNotify(bucket.db).targets), ["hook"]);
});

test("CP-868 what is beside a private network is public", () => {
  const beside = `9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 169.253.255.255 169.255.0.0
    172.15.255.255 172.32.0.0 191.255.255.255 192.0.1.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255
    64:ff9b:2:: 2001:1:: 2003:: fbff:: fe00:: fe7f::`.split(/\s+/);
  const inside = `0.255.255.255 10.255.255.255 100.64.0.0 100.127.255.255 127.0.0.0 169.254.255.255 172.16.0.0 172.31.255.255
    192.0.0.255 192.168.255.255 198.18.0.0 198.19.255.255 224.0.0.0 240.0.0.1
    64:ff9b:1:ffff:: 2001:0:ffff:: 2002:ffff:: fc00:: fdff:: fe80:: febf:: fec0:: feff:: ff00::`.split(/\s+/);
  assert.deepEqual([beside.filter((one) => !isPublic(one)), inside.filter(isPublic)], [[], []]);
});

test("a stored text that this program does not understand tells nobody", () => {
  for (const text of ["{", "{}", "[]", '{"file": {}}', '{"file": {"later": 1}, "templates": {}}'])
    assert.equal(storedNotify(text), NO_NOTIFY);
  assert.deepEqual(NO_NOTIFY, { targets: {}, send: [], quiet: [], templates: {} });
});

test("CP-865 quiet hours go by the clocks of their timezone, and over midnight", () => {
  const night = { fromMinute: 22 * 60, toMinute: 7 * 60, days: [5], timezone: "Europe/Berlin" };
  const at = (text: string) => isQuiet([night], Date.parse(text));
  // 27 November 2026 is a Friday, in winter time.
  assert.deepEqual(
    ["2026-11-27T20:59Z", "2026-11-27T21:00Z", "2026-11-28T05:59Z", "2026-11-28T06:00Z", "2026-11-28T21:00Z"].map(at),
    [false, true, true, false, false],
  );
  const noon = { fromMinute: 12 * 60, toMinute: 13 * 60, days: [0, 1, 2, 3, 4, 5, 6], timezone: "UTC" };
  assert.deepEqual(
    ["2026-11-27T11:59Z", "2026-11-27T12:30Z", "2026-11-27T13:00Z"].map((text) => isQuiet([noon], Date.parse(text))),
    [false, true, false],
  );
});

test("CP-868 addresses of networks, hosts and nobody are not public, in whatever form", () => {
  const inside = "10.1.2.3 172.31.0.1 192.168.1.1 127.9.9.9 169.254.169.254 100.64.0.1 0.0.0.0 255.255.255.255 224.0.0.1".split(
    " ",
  );
  const wrapped = ":: ::1 fd00::1 fe80::1%eth0 ff02::1 ::ffff:10.1.2.3 64:ff9b::a01:203 2002:7f00:1:: ::7f00:1 nonsense".split(
    " ",
  );
  for (const address of [...inside, ...wrapped]) assert.ok(!isPublic(address), address);
  for (const address of ["8.8.8.8", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
    assert.ok(isPublic(address), address);
});

import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { Problems, sentenceOf } from "../../../lib/bucket/base/problems.ts";
import { builtNotify, NO_NOTIFY, readNotify, storedNotify } from "../../../lib/bucket/notify/notify.ts";
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
  for (const text of ["{", "{}", '{"file": {"later": 1}, "templates": {}}']) assert.deepEqual(storedNotify(text), NO_NOTIFY);
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

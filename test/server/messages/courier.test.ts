import assert from "node:assert/strict";
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { setDefaultCACertificates } from "node:tls";
import { changeJobSecret } from "../../../lib/bucket/catalog/job-secret.ts";
import { SAMPLE } from "../../../lib/bucket/notify/body.ts";
import { storedNotify } from "../../../lib/bucket/notify/notify.ts";
import { Launcher } from "../../../lib/core/spawn.ts";
import { Courier } from "../../../lib/server/messages/courier.ts";
import type { LookupAll } from "../../../lib/server/messages/webhook.ts";
import { Readers } from "../../../lib/server/reading.ts";
import { EarlierAuthority } from "../../helpers/earlier.ts";
import { Receiver, TAKES } from "../../helpers/receiver.ts";
import { makeBucket } from "../../helpers/workspace.ts";

const HIDDEN = "hidden-part-of-the-address";
const VALUE = "a<secret>&value";

/** A courier of a bucket with a secret; sends the sample to a target and answers why it was not taken. */
async function courierFor(t: TestContext, lookUp?: LookupAll) {
  const bucket = await makeBucket(t);
  const { layout } = bucket;
  await changeJobSecret(layout, { job: null, key: "token", value: `${VALUE}\n` });
  const readers = new Readers();
  t.after(() => readers.close());
  const courier = new Courier({ readers, launcher: new Launcher(process.env), now: Date.now, ...(lookUp && { lookUp }) });
  const send = async (target: object, { fields = SAMPLE, templates = {}, signal = t.signal } = {}): Promise<string | null> => {
    const notify = storedNotify(JSON.stringify({ file: { targets: { one: target } }, templates }));
    return await courier.send({ layout, notify, target: "one", fields }, signal).then(
      () => null,
      (error: Error) => error.message,
    );
  };
  return { bucket, send };
}

test("CP-867 a receiver that fails, redirects, closes or hangs has not taken the message; one whose answer goes on has", async (t) => {
  const receiver = await Receiver.start(t);
  const other = await Receiver.start(t);
  const { send } = await courierFor(t);
  const hook = { webhook: `${receiver.url}/${HIDDEN}?key=${HIDDEN}`, private: true };
  const answers: [typeof TAKES, RegExp | null][] = [
    [TAKES, null],
    [(response) => void response.writeHead(503).end("down"), /^the answer is 503$/],
    [
      (response) => void response.writeHead(307, { Location: other.url }).end(),
      /^the answer is 307: redirects are not followed$/,
    ],
    [(response) => void response.destroy(), /^it cannot be reached: ECONNRESET$/],
    [(response) => void response.writeHead(200).write("on and on"), null],
    [(response) => setTimeout(() => response.writeHead(202).end(), 300), null],
    [() => {}, /^there was no answer within 10 s$/],
  ];
  for (const [behaviour, why] of answers) {
    receiver.behaviour = behaviour;
    const found = await send(hook);
    if (why === null) assert.equal(found, null);
    else assert.match(String(found), why);
    assert.ok(!String(found).includes(HIDDEN));
  }
  assert.equal(other.connections, 0);
  assert.equal(await send({ webhook: `http://127.0.0.1:1/${HIDDEN}`, private: true }), "it cannot be reached: ECONNREFUSED");
});

test("CP-867 a certificate is verified, and the name in it", async (t) => {
  const authority = new EarlierAuthority(t);
  const { certificate: cert, key } = authority.issue("hook", "DNS:localhost");
  const receiver = await Receiver.start(t, { key, cert });
  const { send } = await courierFor(t);
  const port = new URL(receiver.url).port;
  const good = { webhook: `https://localhost:${port}/`, private: true };
  assert.match(String(await send(good)), /^it cannot be reached: \w*(?:SELF_SIGNED|UNABLE_TO)\w*$/);
  setDefaultCACertificates([authority.certificate]);
  assert.match(String(await send({ ...good, webhook: receiver.url })), /^it cannot be reached: ERR_TLS_CERT_ALTNAME_INVALID$/);
  assert.equal(receiver.received.length, 0);
  assert.equal(await send(good), null);
  assert.equal(receiver.received.length, 1);
});

test("CP-868 no address of a private network is called without private, whatever a name stands for", async (t) => {
  const receiver = await Receiver.start(t);
  const port = new URL(receiver.url).port;
  const found: { address: string; family: number }[] = [];
  const { send } = await courierFor(t, (_, __, done) => done(null, found));
  const hidden = /^its address is of a private network or of the server's own host: it needs "private": true$/;
  for (const host of ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "10.1.2.3", "169.254.169.254", "[fd00::1]"])
    assert.match(String(await send({ webhook: `https://${host}:${port}/` })), hidden, host);
  for (const address of ["127.0.0.1", "192.168.0.1", "100.64.0.1", "::1", "fe80::1", "::ffff:10.0.0.1"]) {
    found.splice(0, found.length, { address, family: address.includes(":") ? 6 : 4 });
    assert.match(String(await send({ webhook: `https://hook.example:${port}/` })), hidden, address);
  }
  // A name without TLS must be this host; what it stands for when the build has looked does not count.
  found.splice(0, found.length, { address: "192.168.0.1", family: 4 });
  assert.match(String(await send({ webhook: `http://localhost:${port}/`, private: true })), /not of the server's own host/);
  assert.equal(receiver.connections, 0);
  found.splice(0, found.length, { address: "127.0.0.1", family: 4 });
  assert.equal(await send({ webhook: `http://localhost:${port}/`, private: true }), null);
});

test("CP-868 of the addresses of a name only those that may be called are connected to", async (t) => {
  const receiver = await Receiver.start(t);
  const asked: string[] = [];
  const { send } = await courierFor(t, (name, _, done) => {
    asked.push(name);
    // The first one leads nowhere.
    done(null, [
      { address: "192.0.2.1", family: 4 },
      { address: "127.0.0.1", family: 4 },
    ]);
  });
  const stop = AbortSignal.any([t.signal]);
  const [webhook] = [`https://hook.example:${new URL(receiver.url).port}/`];
  assert.notEqual(await send({ webhook }, { signal: stop }), null);
  assert.deepEqual([asked, receiver.connections], [["hook.example"], 0]);
});

test("CP-870 CP-871 secrets go where notify.json names them, and are masked everywhere else", async (t) => {
  const receiver = await Receiver.start(t);
  const { send } = await courierFor(t);
  const fields = { ...SAMPLE, Text: `the value is ${VALUE}`, Reason: VALUE, Places: [VALUE] };
  for (const body of ["json", "slack", "matrix", "ntfy", "alertmanager", "own.tpl"]) {
    const target = {
      webhook: receiver.url,
      private: true,
      body,
      headers: { Authorization: { secret: "token" }, "X-Plain": "1" },
    };
    const templates = { "own.tpl": `{{ .Text }} ${VALUE} {{ mrkdwn .Reason }} {{ json .Places }}` };
    assert.equal(await send(target, { fields, templates }), null, body);
  }
  for (const { body, headers } of receiver.received) {
    assert.doesNotMatch(body, /secret(?:>|&gt;|\\u003e)/);
    assert.equal(headers.authorization, VALUE);
    assert.equal(headers["x-plain"], "1");
  }
  const [json, slack, matrix, ntfy, alerts, own] = receiver.received;
  assert.equal(JSON.parse(json?.body ?? "").text, "the value is ***");
  assert.equal(JSON.parse(slack?.body ?? "").text, "*shop/live: Unhealthy: web on 10.0.0.1*\nthe value is ***");
  assert.deepEqual([matrix?.method, matrix?.path], ["PUT", `/${SAMPLE.ID}`]);
  assert.equal(JSON.parse(matrix?.body ?? "").msgtype, "m.text");
  assert.deepEqual(
    [ntfy?.headers["content-type"], ntfy?.body],
    ["text/plain; charset=utf-8", "shop/live: Unhealthy: web on 10.0.0.1\nthe value is ***\n"],
  );
  const [alert] = JSON.parse(alerts?.body ?? "");
  assert.deepEqual(
    [alert.labels.alertname, alert.startsAt, alert.endsAt],
    ["allocation_unhealthy", SAMPLE.OpenedAt, SAMPLE.ForgetAt],
  );
  assert.match(own?.body ?? "", /^the value is \*\*\* \*\*\* \*\*\* \["\*\*\*"\]$/);
  const missing = await send({ webhook: { secret: "nope" } });
  assert.equal(missing, 'there is no secret "nope": ops notify set-secret stores it');
});

test("CP-867 what cannot be a message is not sent: its address, a header or the length of its body", async (t) => {
  const receiver = await Receiver.start(t);
  const { send } = await courierFor(t);
  const target = { webhook: receiver.url, private: true, body: "own.tpl" };
  const sent = async (more: object, text = "x") => await send({ ...target, ...more }, { templates: { "own.tpl": text } });
  const most = 256 * 1024;
  assert.match(String(await sent({ webhook: { secret: "token" } })), /^its address: /);
  assert.equal(await sent({ headers: { "X-Odd": "\u{1f600}" } }), "the header X-Odd has characters that no header can have");
  assert.equal(await sent({}, "x".repeat(most + 1)), `the body has more than ${most} bytes`);
  assert.equal(receiver.received.length, 0);
  assert.equal(await sent({}, "x".repeat(most)), null);
});

test("CP-869 a command reads the message, has nothing of the environment, and says why it fails; one that others may write is not run", async (t) => {
  const { bucket, send } = await courierFor(t);
  const folder = path.join(bucket.dir, "bin");
  mkdirSync(folder, { mode: 0o755 });
  const script = (name: string, text: string) => {
    writeFileSync(path.join(folder, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
    return path.join(folder, name);
  };
  const out = path.join(folder, "out");
  const mail = script("mail", `cat >"$1"; env | cut -d= -f1 | grep -vx '_\\|PWD\\|SHLVL\\|NODE_V8_COVERAGE' >"$1.env"`);
  const templates = { "mail.tpl": "Subject: {{ .Subject }}\n\n{{ .Text }}\n" };
  assert.equal(await send({ command: [mail, out], body: "mail.tpl" }, { templates }), null);
  assert.equal(readFileSync(out, "utf8"), `Subject: ${SAMPLE.Subject}\n\n${SAMPLE.Text}\n`);
  assert.equal(readFileSync(`${out}.env`, "utf8"), "PATH\n");
  const bad = script("bad", `echo "first" >&2; echo "no relay: ${VALUE}" >&2; exit 75`);
  assert.equal(await send({ command: [bad] }), "the command ended with exit code 75: no relay: ***");
  const chatty = script("chatty", "printf '%0300d' 0; exit 1");
  assert.equal(await send({ command: [chatty] }), `the command ended with exit code 1: ${"0".repeat(300)}`);
  const chattier = script("chattier", "printf '%0301d' 0; exit 1");
  assert.equal(await send({ command: [chattier] }), `the command ended with exit code 1: ${"0".repeat(300)}…`);
  chmodSync(bad, 0o757);
  assert.match(String(await send({ command: [bad] })), /^others may write the command/);
  assert.match(String(await send({ command: [path.join(folder, "gone")] })), /^the command cannot be used: /);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { Problems } from "../../../lib/bucket/base/problems.ts";
import { checkManifest, hookNames } from "../../../lib/bucket/workspace/manifest.ts";
import { certRequests, certs, isCertFile } from "../../../lib/bucket/workspace/manifest-blocks.ts";
import { check, join } from "../../../lib/core/shape.ts";

function read(job: string, value: unknown) {
  const checked = check(certs(), value);
  return checked.ok
    ? { requests: certRequests(job, checked.value), warnings: checked.warnings }
    : checked.problems.map(({ path, message }) => `${path}: ${message}`);
}

test("a certificate without fields has the defaults, and the job's name as its own", () => {
  const plain = { pkcs8: false, one: false, key: "ec", altNames: [] };
  assert.deepEqual(read("web", { server: {}, admin: { subject: {} } }), {
    requests: [
      { ...plain, name: "admin", commonName: "web" },
      { ...plain, name: "server", commonName: "web" },
    ],
    warnings: [],
  });
  const long = read("j".repeat(100), { server: {} });
  assert.equal("requests" in long && long.requests[0]?.commonName, "j".repeat(64));
});

test("every field is taken, keys without regard to case, `null` means absent", () => {
  const subject = { Common_Name: " My web ", ALT_NAMES: ["*.web.example", "10.0.0.9", "fd00::9", "web"] };
  assert.deepEqual(read("web", { server: { PKCS8: true, one: true, key: "rsa", subject, extra: 1, x: null } }), {
    requests: [
      {
        name: "server",
        pkcs8: true,
        one: true,
        key: "rsa",
        commonName: "My web",
        altNames: ["*.web.example", "10.0.0.9", "fd00::9", "web"],
      },
    ],
    warnings: [{ path: "server/extra", message: "is not a known field" }],
  });
});

test("what cannot be issued is refused with its place", () => {
  for (const [value, expected] of [
    [{ ca: {} }, /^ca: expected small letters.* and not ca, as name$/],
    [{ "a-b": {} }, /^a-b: expected small letters/],
    [{ Server: {} }, /^Server: expected small letters/],
    [{ ["n".repeat(101)]: {} }, /as name$/],
    [{ a: [] }, /^a: expected an object, found a list$/],
    [{ a: { one: "yes" } }, /^a\/one: expected true or false/],
    [{ a: { key: "dsa" } }, /^a\/key: expected one of ec, rsa, found "dsa"$/],
    [{ a: { subject: { common_name: "x".repeat(65) } } }, /^a\/subject\/common_name: expected one line of at most 64/],
    [{ a: { subject: { common_name: "x\ny" } } }, /^a\/subject\/common_name: expected one line/],
    [{ a: { subject: { alt_names: ["a b"] } } }, /^a\/subject\/alt_names\/0: expected an IP address or a DNS name/],
    [{ a: { subject: { alt_names: ["*.10.0.0.1"] } } }, /^a\/subject\/alt_names\/0/],
    [{ a: { subject: { alt_names: ["*"] } } }, /^a\/subject\/alt_names\/0/],
    [{ a: { subject: { alt_names: ["fe80::1%eth0"] } } }, /^a\/subject\/alt_names\/0/],
    [{ a: { subject: { alt_names: "x" } } }, /^a\/subject\/alt_names: expected a list/],
  ] as const) {
    const problems = read("web", value);
    assert.ok(Array.isArray(problems), JSON.stringify(value));
    assert.match(problems[0] ?? "", expected);
  }
});

test("files of the workspace may lie beside the certificates, never where they have to be", () => {
  const server = certRequests("web", {
    server: { pkcs8: false, one: false, key: "ec", subject: { common_name: "", alt_names: [] } },
  });
  for (const file of ["certs", "certs.tpl", "certs/ca.crt", "certs/ca.crt.tpl", "certs/server.key", "certs/server.crt/x"])
    assert.equal(isCertFile(server, file), true, file);
  for (const file of ["certs/other.crt", "certs/ca.key", "certs/server.crt2", "certs2", "conf/certs", "certs.d/ca.crt"])
    assert.equal(isCertFile(server, file), false, file);
});

/** What is wrong with a manifest: code and place of each problem. */
function wrongIn(manifest: unknown): string[] {
  const problems = new Problems();
  checkManifest("web", manifest, problems.in("manifest.json", "ErrInvalidManifest"));
  return problems.errors.map(({ code, path }) => `${code} ${path}`);
}

const probe = (fields: object, more: object = {}) => ({
  resources: { ports: { http: {} } },
  health_check: { checks: [{ type: "http", port: "http", ...fields }], ...more },
});
const ssh = (fields: object) => probe({ type: "ssh", port: "", command: "true", ...fields });
const cert = (subject: object, name = "a") => ({ certs: { [name]: { subject } } });
const demand = (fields: object, name = "a") => ({ hooks: { [name]: { executed_on: ["cli"], demands: fields } } });
const nested = (levels: number): unknown => (levels === 1 ? {} : { a: nested(levels - 1) });

test("each amount in a manifest goes from its least to its most, and no further", () => {
  const AMOUNTS: [least: number, most: number, path: string, manifest: (amount: number) => object][] = [
    [0, 100, "version", (length) => ({ version: "1".repeat(length) })],
    [0, Number.MAX_SAFE_INTEGER, "min_allocations_count", (count) => ({ min_allocations_count: count })],
    [-1, Number.MAX_SAFE_INTEGER, "max_concurrent_upgrades", (count) => ({ max_concurrent_upgrades: count })],
    [-1, 86_400, "lifecycle_timeout_seconds", (seconds) => ({ lifecycle_timeout_seconds: seconds })],
    [1, 1_000, "restart_globs/0", (length) => ({ restart_policy: "reload", restart_globs: ["x".repeat(length)] })],
    [1, 1_000, "drift_ignore/0", (length) => ({ drift_ignore: ["x".repeat(length)] })],
    [-1, 86_400, "health_check/timeout_seconds", (seconds) => probe({}, { timeout_seconds: seconds })],
    [-1, 100_000, "health_check/wait/attempts", (attempts) => probe({}, { wait: { attempts } })],
    [-1, 86_400, "health_check/wait/interval_seconds", (seconds) => probe({}, { wait: { interval_seconds: seconds } })],
    [-1, 86_400, "health_check/checks/0/timeout_seconds", (seconds) => probe({ timeout_seconds: seconds })],
    [100, 999, "health_check/checks/0/expect_status", (status) => probe({ expect_status: status })],
    [1, 2_000, "health_check/checks/0/path", (length) => probe({ path: "/".repeat(length) })],
    [1, 100_000, "health_check/checks/0/command", (length) => ssh({ command: "x".repeat(length) })],
    [0, 64, "certs/a/subject/common_name", (length) => cert({ common_name: "x".repeat(length) })],
    [0, 1_000, "certs/a/subject/alt_names", (count) => cert({ alt_names: Array.from({ length: count }, () => "a") })],
    [1, 32, "hooks/a/demands/config", (levels) => demand({ config: nested(levels) })],
  ];
  const refused = (amount: number, [, , path, manifest]: (typeof AMOUNTS)[0]) =>
    assert.deepEqual(wrongIn(manifest(amount)).slice(0, 1), [`${codeOf(path)} ${path}`], `${path} ${amount}`);
  const codeOf = (path: string) => (path.startsWith("hooks") ? "ErrInvalidHookConfiguration" : "ErrInvalidManifest");
  for (const row of AMOUNTS) {
    const [least, most, path, manifest] = row;
    for (const amount of [least, most]) assert.deepEqual(wrongIn(manifest(amount)), [], `${path} ${amount}`);
    if (most < Number.MAX_SAFE_INTEGER) refused(most + 1, row);
    if (least === 100 || path === "min_allocations_count") refused(least - 1, row);
  }
  const probes = (count: number) => ({
    health_check: { checks: Array.from({ length: count }, () => ({ type: "ssh", command: "a" })) },
  });
  assert.deepEqual([wrongIn(probes(100)), wrongIn(probes(101))], [[], ["ErrInvalidManifest health_check/checks"]]);
});

test("texts and names in a manifest are of their form from the first to the last character", () => {
  const port = (name: string, value: unknown = {}) => ({ resources: { ports: { [name]: value } } });
  const memory = (min: string, max: string) => ({ resources: { memory: { min, max } } });
  const tolerate = (share: string) => ({ tolerate: { unreachable: share } });
  const right = [
    ...["100%", "0%", "99.123456%", "5.5%"].map(tolerate),
    ...["0600", "0640", "0644"].map((mode) => ({ secret_mode: mode })),
    ...["always", "never", "reload"].map((policy) => ({ restart_policy: policy })),
    ...["stop", "restore"].map((what) => ({ on_failure: what })),
    ...["/~!$", "/", "", "/a?b#c"].map((path) => probe({ path })),
    ...["HTTP", " https ", ""].map((scheme) => probe({ scheme })),
    ...[port("a".repeat(100)), port("a", 1), port("a", 65_535), cert({}, "a".repeat(100)), demand({}, "a".repeat(100))],
    ...[memory("2", "2"), memory("", "2"), memory("2", ""), ssh({ port: "nowhere" }), probe({ expect_status: 0 })],
    { restart_policy: "reload", restart_globs: ["a"] },
  ];
  for (const manifest of right) assert.deepEqual(wrongIn(manifest), [], JSON.stringify(manifest));
  const [M, H, P] = ["ErrInvalidManifest", "ErrInvalidHookConfiguration", "ErrInvalidManifestPort"];
  const at = "health_check/checks/0";
  const wrong: [error: string, manifests: object[]][] = [
    [`${M} tolerate/unreachable`, ["101%", "100.1%", "1.1234567%", " 5%", "5%%", "a5%"].map(tolerate)],
    [`${M} secret_mode`, ["0o600", "0666", "600"].map((mode) => ({ secret_mode: mode }))],
    [`${M} ${at}/path`, ["a", "/a b", "/é", "/a\n", "/\u007f"].map((path) => probe({ path }))],
    [`${M} ${at}/scheme`, ["ftp", "httpss", "xhttp"].map((scheme) => probe({ scheme }))],
    [
      `${M} ${at}/port`,
      [probe({ port: "" }), probe({ type: "tcp", port: " " }), probe({ port: "no" }), probe({ type: "tcp", port: "no" })],
    ],
    [`${M} ${at}/command`, [ssh({ command: " " }), ssh({ command: "" })]],
    [`${M} ${at}/type`, ["tcps", "", "icmp"].map((type) => probe({ type }))],
    [`${M} resources/memory`, [memory("3", "2")]],
    [`${M} restart_globs`, ["never", "always"].map((policy) => ({ restart_policy: policy, restart_globs: ["a"] }))],
    [`ErrPortKeyFormat ${join("resources/ports", "a".repeat(101))}`, [port("a".repeat(101))]],
    [`${P} resources/ports/a`, [0, 65_536, -1, 1.5, "1", null, []].map((value) => port("a", value))],
    [`${M} ${join("certs", "a".repeat(101))}`, [cert({}, "a".repeat(101))]],
    [`${H} ${join("hooks", "a".repeat(101))}`, [demand({}, "a".repeat(101))]],
    [`${H} hooks/Ops`, [demand({}, "Ops")]],
    [`${H} hooks/A`, [{ hooks: { a: { executed_on: ["cli"] }, A: { executed_on: ["cli"] } } }]],
    [`${H} hooks/1`, [demand({}, "1")]],
    [`${H} hooks/a/demands/config`, [demand({ config: 5 }), demand({ config: [] })]],
  ];
  for (const [error, manifests] of wrong)
    for (const manifest of manifests) assert.deepEqual(wrongIn(manifest), [error], JSON.stringify(manifest).slice(0, 200));
});

test("the hooks of a manifest are known by their names, whatever else is wrong with it", () => {
  for (const [manifest, names] of [
    [{ HOOKS: { Check: 1, up: {} }, Commands: { old: [] }, xhooks: { no: 1 }, hooksx: { no: 1 } }, ["check", "up", "old"]],
    [{ hooks: { "1a": {}, "a b": {}, "": {}, ["a".repeat(101)]: {} }, version: 5 }, []],
    [{ hooks: ["a"], commands: "b" }, []],
    [{}, []],
    [[], []],
    [null, []],
  ] as const)
    assert.deepEqual(hookNames(manifest), names, JSON.stringify(manifest));
});

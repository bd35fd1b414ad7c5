import assert from "node:assert/strict";
import { test } from "node:test";
import { certRequests, certs, isCertFile } from "../../../lib/bucket/workspace/manifest-blocks.ts";
import { check } from "../../../lib/core/shape.ts";

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

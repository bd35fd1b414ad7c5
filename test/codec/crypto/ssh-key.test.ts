import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { fingerprintOf, parsePublicKey } from "../../../lib/codec/crypto/ssh-key.ts";
import { makeKey, publicPart } from "../../../scripts/private-sshd.ts";
import { fingerprintBy } from "../../helpers/sshd.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

function parts(t: TestContext, ...options: string[]) {
  const file = makeKey(temporaryFolder(t), "key", ...options);
  const [type = "", base64 = ""] = publicPart(file).split(" ");
  return { file, type, base64 };
}

for (const options of [
  ["-t", "ed25519"],
  ["-t", "ecdsa"],
  ["-t", "ecdsa", "-b", "521"],
  ["-t", "rsa"],
])
  test(`a key of ssh-keygen ${options.join(" ")} has the fingerprint that ssh-keygen tells`, (t) => {
    const { file, type, base64 } = parts(t, ...options);
    const key = parsePublicKey(type, base64);
    assert.ok(key);
    assert.deepEqual(fingerprintOf(key), { type, fingerprint: fingerprintBy(file) });
  });

test("what is no public key, or of another type than it says, is not taken", (t) => {
  const { type, base64 } = parts(t, "-t", "ed25519");
  for (const [what, given] of [
    ["another type", ["ssh-rsa", base64]],
    ["a type nobody uses", ["ssh-dss", base64]],
    ["a name that every object has", ["constructor", base64]],
    ["no bytes", [type, ""]],
    ["bytes that end in the length of the type", [type, "AAAA"]],
    ["characters that are not base64", [type, `${base64.slice(0, -1)}!`]],
    ["base64 in another form", [type, base64.replaceAll("A", "_")]],
    ["too many characters", [type, base64 + "AAAA".repeat(5000)]],
  ] as const)
    assert.equal(parsePublicKey(given[0] as string, given[1] as string), undefined, what);
});

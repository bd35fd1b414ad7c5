import type { Layout } from "../../bucket/base/layout.ts";
import { loadOpsConf } from "../../bucket/workspace/settings.ts";
import { describeSshKey, removeSshKey, sshKeyFile, storeSshKey } from "../../bucket/workspace/ssh-key.ts";
import { Failure, messageOf } from "../../core/errors.ts";
import { described, object, string } from "../../core/shape.ts";
import { json } from "../../http/message.ts";
import { bucketRoute } from "../context.ts";
import { component } from "./shapes.ts";

const SSH_KEY = "/secrets/ssh_key";
/** Room for an RSA key of 16,384 bits. */
const KEY_CHARACTERS = 16 * 1024;

/**
 * The private key with which workers are reached. A run uses the one it began with to its end, so the key can be
 * changed only while the bucket is free.
 */
export const SECRET_ROUTES = [
  bucketRoute({
    method: "GET",
    path: SSH_KEY,
    summary: "Show the ssh key for the workers: its public part and its fingerprint",
    answer: { status: 200, description: "The key; never its private part", shape: component("SshKey") },
    failures: ["invalid_source"],
    async handle({ bucket: { layout } }, { launcher }) {
      return json(200, await describeSshKey(await keyFile(layout), launcher));
    },
  }),
  bucketRoute({
    method: "PUT",
    path: SSH_KEY,
    summary: "Store the private ssh key for the workers",
    description: "It is kept in secrets/ under the name that `ssh_key` in ops.conf gives. Not while a run is active.",
    body: object({
      private_key: described(
        string({ min: 1, max: KEY_CHARACTERS }),
        "In OpenSSH or PEM form, without a passphrase: ed25519, ecdsa or rsa",
      ),
    }),
    answer: { status: 200, description: "The stored key", shape: component("SshKey") },
    failures: ["invalid_source", "bucket_busy"],
    async handle({ body, bucket: { layout } }, { supervisor, launcher }) {
      return supervisor.exclusively(layout, "ssh_key", async () => {
        const file = await keyFile(layout);
        await storeSshKey(file, body.private_key, launcher);
        return json(200, await describeSshKey(file, launcher));
      });
    },
  }),
  bucketRoute({
    method: "DELETE",
    path: SSH_KEY,
    summary: "Remove the private ssh key for the workers",
    description: "Not while a run is active.",
    answer: { status: 204, description: "There is no key any more" },
    failures: ["invalid_source", "bucket_busy"],
    async handle({ bucket: { layout } }, { supervisor }) {
      await supervisor.exclusively(layout, "ssh_key", async () => removeSshKey(await keyFile(layout)));
      return { status: 204 };
    },
  }),
];

async function keyFile(layout: Layout): Promise<string> {
  try {
    return sshKeyFile(layout, (await loadOpsConf(layout)).settings);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    const message = `Cannot tell the name of the ssh key: ${messageOf(error)}; mend ops.conf and push again`;
    throw new Failure("invalid_source", message, { cause: error });
  }
}

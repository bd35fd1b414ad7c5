import type { Layout } from "../../bucket/base/layout.ts";
import { type JobSecret, ownerOfSecret, SECRET_KEY } from "../../bucket/catalog/job-secret.ts";
import { LONGEST_TTL } from "../../bucket/kv/kv-access.ts";
import type { RootBucket } from "../../bucket/source/root.ts";
import { loadOpsConf } from "../../bucket/workspace/settings.ts";
import { describeSshKey, removeSshKey, sshKeyFile, storeSshKey } from "../../bucket/workspace/ssh-key.ts";
import { Failure, type FailureCode, messageOf } from "../../core/errors.ts";
import { described, integer, object, optional, quote, secret, string } from "../../core/shape.ts";
import { type Answer, json } from "../../http/message.ts";
import { bucketRoute, type Services } from "../context.ts";
import { READ_FAILURES } from "./catalog.ts";
import { component } from "./shapes.ts";

const SSH_KEY = "/secrets/ssh_key";
const JOB_SECRET = "/secrets/jobs/{job}/{key}";
const NOTIFY_SECRET = "/secrets/notify/{key}";
const VALUE = {
  value: described(secret(string({ min: 1 })), "The secret; less than 1 MiB with the rest of the body"),
  ttl: optional(described(integer({ min: 0, max: LONGEST_TTL }), "Seconds until the secret is deleted; 0, the default: never")),
};
const OF_KV_SECRET: readonly FailureCode[] = [...READ_FAILURES, "not_found", "bucket_busy"];
/** Room for an RSA key of 16,384 bits. */
const KEY_CHARACTERS = 16 * 1024;

/**
 * What is written and never read back: the private key with which workers are reached, and secrets of jobs. A run uses
 * those it began with to its end, so they can be changed only while the bucket is free.
 */
export const SECRET_ROUTES = [
  bucketRoute(`GET ${SSH_KEY}`, "read", {
    summary: "Show the ssh key for the workers: its public part and its fingerprint",
    answer: { status: 200, description: "The key; never its private part", shape: component("SshKey") },
    failures: ["invalid_source"],
    handle: async ({ bucket: { layout } }, { launcher }) => json(200, await describeSshKey(await keyFile(layout), launcher)),
  }),
  bucketRoute(`PUT ${SSH_KEY}`, "admin", {
    summary: "Store the private ssh key for the workers",
    description: "It is kept in secrets/ under the name that `ssh_key` in ops.conf gives. Not while a run is active.",
    body: object({
      private_key: described(
        secret(string({ min: 1, max: KEY_CHARACTERS })),
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
  bucketRoute(`DELETE ${SSH_KEY}`, "admin", {
    summary: "Remove the private ssh key for the workers",
    description: "Not while a run is active.",
    answer: { status: 204, description: "There is no key any more" },
    failures: ["invalid_source", "bucket_busy"],
    async handle({ bucket: { layout } }, { supervisor }) {
      await supervisor.exclusively(layout, "ssh_key", async () => removeSshKey(await keyFile(layout)));
      return { status: 204 };
    },
  }),
  ...kvSecretRoutes(JOB_SECRET, {
    store: "Store a secret of a job",
    remove: "Remove a secret of a job",
    use: "for the job's templates and hooks, in the namespace `secrets/job/<job>`",
    hasOwner: true,
  }),
  ...kvSecretRoutes(NOTIFY_SECRET, {
    store: "Store a secret that workspace/notify.json may name",
    remove: "Remove a secret that workspace/notify.json may name",
    use: "in the namespace `secrets/notify`, which no template and no hook reads",
    hasOwner: false,
  }),
];

/** The texts about a kind of secret: `use` says what reads it. A secret of a job has an owner, which may be unknown. */
interface KvSecretKind {
  store: string;
  remove: string;
  use: string;
  hasOwner: boolean;
}

/** The routes that store and remove a secret of the key-value store. */
function kvSecretRoutes(path: `/${string}`, { store, remove, use, hasOwner }: KvSecretKind) {
  return [
    bucketRoute(`PUT ${path}`, "admin", {
      summary: store,
      description:
        `Sealed with the bucket's key, ${use}. It is never sent back; \`cat/kv\` shows its fingerprint and age. ` +
        "Not while a run is active.",
      body: object(VALUE),
      answer: { status: 204, description: "The secret is stored" },
      failures: hasOwner ? OF_KV_SECRET : OF_KV_SECRET.filter((code) => code !== "not_found"),
      handle: async ({ params, body: { value, ttl }, bucket }, services) =>
        changeSecret(bucket, services, { ...secretOf(params), value, ttlSeconds: ttl }),
    }),
    bucketRoute(`DELETE ${path}`, "admin", {
      summary: remove,
      description: "Not while a run is active.",
      answer: { status: 204, description: "There is no such secret any more" },
      failures: OF_KV_SECRET,
      handle: async ({ params, bucket }, services) => changeSecret(bucket, services, secretOf(params)),
    }),
  ];
}

function secretOf({ job, key = "" }: Readonly<Record<string, string>>): JobSecret {
  if (SECRET_KEY.test(key)) return { job: job ?? null, key };
  throw new Failure("invalid_request", `key: expected one line of text, found ${quote(key)}`);
}

/** A task changes the database: the server only reads it. An unknown job is `not_found`, since the path names it. */
async function changeSecret({ id, layout }: RootBucket, { supervisor }: Services, secret: JobSecret): Promise<Answer> {
  const task = { name: "job_secret", bucketDir: layout.root, bucketId: id, input: secret } as const;
  const what = `change the secret ${quote(secret.key)} of ${ownerOfSecret(secret.job)}`;
  try {
    await supervisor.exclusively(layout, "job_secret", () => supervisor.task(task, what));
    return { status: 204 };
  } catch (error) {
    const isUnknown = error instanceof Failure && error.code === "unknown_name";
    throw isUnknown ? new Failure("not_found", error.message, { cause: error }) : error;
  }
}

async function keyFile(layout: Layout): Promise<string> {
  try {
    return sshKeyFile(layout, (await loadOpsConf(layout)).settings);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    const message = `Cannot tell the name of the ssh key: ${messageOf(error)}; mend ops.conf and push again`;
    throw new Failure("invalid_source", message, { cause: error });
  }
}

import type { Target } from "../base/flags.ts";
import { toStderr } from "../base/terminal.ts";
import type { BucketAccess, RunDetail, RunsWanted } from "../state/access.ts";
import { catalogOn } from "./catalog.ts";
import { nextPiece } from "./follow.ts";
import { asWhom, identityOn } from "./people.ts";
import {
  expectAnswer,
  namedAnswer,
  namedAnswers,
  openRemoteBucket,
  PAGE,
  patiently,
  type RemoteBucket,
} from "./remote-bucket.ts";

const PAGE_RUNS = 100;

const tell = (text: string) => toStderr(`${text}\n`);

/** The bucket of a server. */
export async function accessOn(target: Target): Promise<BucketAccess> {
  const bucket = await openRemoteBucket(target);
  const { client } = bucket;
  return {
    ...catalogOn(bucket),
    async place() {
      const { project, name } = await namedAnswer("Bucket", await bucket.get(""));
      return `${project}/${name} on ${client.base.origin}${asWhom(await identityOn(client))}`;
    },
    runNamed: (given) => bucket.runNamed(given),
    revisionNamed: (given) => bucket.revisionNamed(given),
    runs: (wanted) => newestRuns(bucket, wanted),
    run: async (id) => await namedAnswer("RunDetail", await patiently({ tell }, () => bucket.get(`/runs/${id}`))),
    log: (id, after, signal) => nextPiece(bucket, id, after, { signal, tell }),
    lines: async (id, wanted) =>
      await namedAnswer("LogLines", await bucket.get(`/runs/${id}/logs/lines`, { ...wanted, timeout: 0 })),
    cancel: async (id) => void (await client.call("POST", bucket.path(`/runs/${id}/cancel`), { json: {} })),
    revisions: async () => await namedAnswers("Revision", await bucket.all("/source/revisions")),
    diff: async (id, against) => await namedAnswer("RevisionDiff", await bucket.get(`/source/revisions/${id}/diff`, { against })),
    summary: async () => await namedAnswer("BucketSummary", await bucket.get("/summary")),
    health: async (job) => await namedAnswers("HealthRecord", await bucket.all("/health", { job })),
    line: async () => ({ waiting: await namedAnswers("WaitingStart", (await bucket.get("/queue")).items), holder: null }),
    sshKey: async () => await namedAnswer("SshKey", await bucket.get("/secrets/ssh_key")),
    async storeSshKey(private_key) {
      return await namedAnswer("SshKey", await client.call("PUT", bucket.path("/secrets/ssh_key"), { json: { private_key } }));
    },
    removeSshKey: async () => void (await client.call("DELETE", bucket.path("/secrets/ssh_key"))),
    snapshots: async () => await namedAnswers("Snapshot", await bucket.all("/snapshots")),
    async removeSnapshot(given) {
      const name = await bucket.snapshotNamed(given);
      await client.call("DELETE", bucket.path("/snapshots", name));
      return name;
    },
  };
}

async function newestRuns(bucket: RemoteBucket, { limit, ...wanted }: RunsWanted): Promise<Omit<RunDetail, "progress">[]> {
  const runs: unknown[] = [];
  for (let cursor: string | undefined; runs.length < limit; ) {
    const query = { ...wanted, cursor, limit: Math.min(PAGE_RUNS, limit - runs.length) };
    const { items, next_cursor: next } = expectAnswer(PAGE, await bucket.get("/runs", query));
    runs.push(...items);
    if (typeof next !== "string") break;
    cursor = next;
  }
  return await namedAnswers("Run", runs);
}

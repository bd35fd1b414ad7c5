import type { LogChunk } from "../../run/activity.ts";
import type { LogLines } from "../../run/log-view.ts";
import type { Target } from "../base/flags.ts";
import { toStderr } from "../base/terminal.ts";
import type { BucketAccess, RevisionDiff, RunDetail, RunsWanted, Summary, WaitingStart } from "../state/access.ts";
import { CHUNK, RUN } from "./follow.ts";
import { expectAnswer, openRemoteBucket, PAGE, patiently, type RemoteBucket } from "./remote-bucket.ts";

const POLL_SECONDS = 30;
const PAGE_RUNS = 100;

const tell = (text: string) => toStderr(`${text}\n`);

/** The bucket of a server. */
export async function accessOn(target: Target): Promise<BucketAccess> {
  const bucket = await openRemoteBucket(target);
  const { client } = bucket;
  const get = async <T>(path: string, query = {}) => (await bucket.get(path, query)) as T;
  return {
    async place() {
      const { project, name } = await bucket.get("");
      return `${project}/${name} on ${client.base.origin}`;
    },
    runNamed: (given) => bucket.runNamed(given),
    revisionNamed: (given) => bucket.revisionNamed(given),
    runs: (wanted) => newestRuns(bucket, wanted),
    async run(id) {
      const run = await patiently({ tell }, () => bucket.get(`/runs/${id}`));
      expectAnswer(RUN, run);
      return run as unknown as RunDetail;
    },
    async log(id, after, signal) {
      const ask = () => bucket.get(`/runs/${id}/logs`, { after, timeout: POLL_SECONDS }, { signal });
      const chunk = await patiently({ signal, tell }, ask);
      expectAnswer(CHUNK, chunk);
      return chunk as unknown as LogChunk;
    },
    lines: (id, wanted) => get<LogLines>(`/runs/${id}/logs/lines`, { ...wanted, timeout: 0 }),
    cancel: async (id) => void (await client.call("POST", bucket.path(`/runs/${id}/cancel`), { json: {} })),
    revisions: () => bucket.all("/source/revisions") as unknown as ReturnType<BucketAccess["revisions"]>,
    diff: (id, against) => get<RevisionDiff>(`/source/revisions/${id}/diff`, { against }),
    summary: () => get<Summary>("/summary"),
    line: async () => ({ waiting: (await get<{ items: WaitingStart[] }>("/queue")).items, holder: null }),
    sshKey: () => get("/secrets/ssh_key"),
    storeSshKey: async (privateKey) =>
      (await client.call("PUT", bucket.path("/secrets/ssh_key"), { json: { private_key: privateKey } })) as unknown as Awaited<
        ReturnType<BucketAccess["storeSshKey"]>
      >,
    removeSshKey: async () => void (await client.call("DELETE", bucket.path("/secrets/ssh_key"))),
  };
}

async function newestRuns(bucket: RemoteBucket, { limit, ...wanted }: RunsWanted): Promise<RunDetail[]> {
  const runs: RunDetail[] = [];
  for (let cursor: unknown; runs.length < limit; ) {
    const query = {
      ...wanted,
      limit: Math.min(PAGE_RUNS, limit - runs.length),
      ...(cursor !== undefined && { cursor: String(cursor) }),
    };
    const { items, next_cursor: next } = expectAnswer(PAGE, await bucket.get("/runs", query));
    runs.push(...(items as unknown as RunDetail[]));
    cursor = next;
    if (cursor === undefined) break;
  }
  return runs;
}

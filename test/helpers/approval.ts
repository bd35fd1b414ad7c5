import assert from "node:assert/strict";
import path from "node:path";
import type { TestContext } from "node:test";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { type CallOptions, TestServer } from "./server.ts";
import { archiveBytes, readTree } from "./sources.ts";
import { temporaryFolder } from "./temporary.ts";
import { makeWorkspace } from "./workspace.ts";

/** Two workers of this machine with a job that has a hook. */
function workspaceIn(folder: string, workers: string): void {
  makeWorkspace(folder, {
    jobs: {
      web: {
        version: "1.0.0",
        selectors: ["worker"],
        hooks: { look: { executed_on: ["cli"] }, before: { executed_on: ["pre_deploy"] } },
      },
    },
    workers: ["127.0.0.1", "127.0.0.2"].map((host) => ({ host, connection: "local", root: path.join(workers, host) })),
    files: { "workspace/jobs/web/_hooks/look.py": "import ops\nprint('looks from', ops.allocation_ip())\n" },
  });
}

/** A server with a bucket that asks for approvals, and people who may start runs there: ada, ben and eva; boss is an admin. */
export async function approvalServer(t: TestContext, approvals = 1) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  workspaceIn(bucket.folder, temporaryFolder(t));
  const [ada, ben, eva, boss] = await Promise.all([
    ...["ada", "ben", "eva"].map((name) => server.makeToken({ name, role: "deploy" })),
    server.makeToken({ name: "boss", role: "admin" }),
  ]);
  const people = { ada, ben, eva, boss } as Record<"ada" | "ben" | "eva" | "boss", NonNullable<typeof ada>>;
  /** Asks as somebody; without a name as the server's own token. */
  const as = (who: keyof typeof people | "root", method: string, target: string, body?: unknown, more: CallOptions = {}) => {
    const authorization = who === "root" ? {} : { authorization: people[who].authorization };
    return server.call(method, `${bucket.path}${target}`, { ...authorization, ...(body !== undefined && { body }), ...more });
  };
  const ended = (run: string) => server.ended(bucket.path, run);
  /** Starts a run, which must be accepted, and waits for its end. */
  const run = async (who: Parameters<typeof as>[0], target: string, body: unknown = {}, more: CallOptions = {}) => {
    const reply = await as(who, "POST", target, body, more);
    assert.equal(reply.status, 202, reply.text);
    return await ended(reply.body.run_id);
  };
  const propose = async (kind: string, params: unknown, who: Parameters<typeof as>[0] = "ada") => {
    const reply = await as(who, "POST", "/proposals", { kind, params });
    assert.equal(reply.status, 201, reply.text);
    return reply.body;
  };
  const approve = (id: string, who: Parameters<typeof as>[0] = "ben") => as(who, "POST", `/proposals/${id}/approve`, {});
  /** A proposal of ada that ben has approved. */
  const approved = async (kind: string, params: unknown) => {
    const { id } = await propose(kind, params);
    const reply = await approve(id);
    assert.equal(reply.status, 200, reply.text);
    return reply.body;
  };
  const setApprovals = async (count: number) => {
    const reply = await as("boss", "PUT", "", { approvals: count });
    assert.deepEqual([reply.status, reply.body.approvals], [200, count], reply.text);
  };
  assert.equal((await run("root", "/build")).status, "succeeded");
  await setApprovals(approvals);
  const runs = async () => (await as("root", "GET", "/runs")).body.items;
  return {
    server,
    bucket,
    layout: layoutOf(bucket.folder),
    people,
    as,
    run,
    ended,
    propose,
    approve,
    approved,
    setApprovals,
    runs,
  };
}

/** What a refused start answers: the status, the code, and how many approvals are missing. */
export function refusal({ status, body }: { status: number; body: { error: string; details?: { missing?: number } } }) {
  return [status, body.error, body.details?.missing];
}

/** The source in the folder of a bucket, as a push sends it. */
export async function sourceOf(folder: string): Promise<Buffer> {
  return await archiveBytes(readTree(folder));
}

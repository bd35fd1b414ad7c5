import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { shortId } from "../../../lib/cli/base/terminal.ts";
import { showDifferences, showRevisions } from "../../../lib/cli/state/revisions.ts";
import { listRuns } from "../../../lib/cli/state/runs.ts";
import { listSnapshots } from "../../../lib/cli/state/snapshots.ts";
import { statusCommand } from "../../../lib/cli/state/status.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";

type Access = Parameters<typeof listRuns>[0];

const NOTHING = { operands: [], values: new Map<string, string>(), switches: new Set<string>() };
const LONG = "x".repeat(300);
const AT = `${new Date().getUTCFullYear()}-05-04T12:34:56.789Z`;

/** What a command writes to a terminal of 80 columns. */
async function shown(t: TestContext, work: (bucket: Access, input: typeof NOTHING) => Promise<number>, bucket: object) {
  let text = "";
  const { columns, isTTY } = process.stdout;
  const write = t.mock.method(process.stdout, "write", (piece: string | Uint8Array) => {
    text += piece;
    return true;
  });
  Object.assign(process.stdout, { columns: 80, isTTY: true });
  try {
    assert.equal(await work(bucket as Access, NOTHING), 0);
  } finally {
    Object.assign(process.stdout, { columns, isTTY });
    write.mock.restore();
  }
  return text;
}

test("a list of runs fits into 80 columns, with ids that can be typed again", async (t) => {
  const run = (kind: string, params: object) => ({
    ...{ id: uuidV7(), kind, status: "cancelled", created_at: AT, duration_ms: 3_600_000, params, break_glass: null },
    audit: [{ actor: { address: "somebody@a-machine-with-a-long-name.example (process 12345)" } }],
  });
  const runs = [run("snapshot_restore", { snapshot: LONG }), run("deploy", { jobs: ["web", "api"], force: true, note: "why" })];
  const text = await shown(t, listRuns, { runs: async () => runs });
  assert.ok(
    text.split("\n").every((line) => line.length <= 80),
    text,
  );
  for (const { id } of runs) assert.match(text, new RegExp(`^${shortId(id)}  `, "m"));
  assert.match(text, / 05-04 12:34 {2}1 h /);
  assert.match(text, /why; web/);
});

test("a list of revisions fits into 80 columns", async (t) => {
  const revision = { id: uuidV7(), created_at: AT, build_status: "succeeded", note: LONG, commit: `${"a1".repeat(20)}-dirty` };
  const marks = { current: true, last_successful: true };
  const text = await shown(t, showRevisions, { revisions: async () => [{ ...revision, ...marks }] });
  assert.ok(
    text.split("\n").every((line) => line.length <= 80),
    text,
  );
});

test("times in tables have the year only where it is another one, so that the name of a snapshot stays whole", async (t) => {
  const one = { name: "20261127T022042.649Z-9e14843e", size_bytes: 16_502, seal: { for: "passphrase" }, error: null, note: "" };
  const list = (created_at: string) => shown(t, listSnapshots, { snapshots: async () => [{ ...one, created_at, own: true }] });
  assert.match(await list(AT), new RegExp(`^${one.name}  05-04 12:34 +16502 `, "m"));
  assert.match(await list("2001-11-27T02:20:42Z"), / {2}2001-11-27 02:20 +16502 /);
});

test("the differences of revisions are coloured on a terminal that is not dumb, unless NO_COLOR says no", async (t) => {
  const changed = [{ path: "ops.conf", mode: { before: "0644", after: "0755" }, diff: "-old\n+new\n", omitted: null }];
  const others = [{ path: "a.bin", mode: null, diff: null, omitted: "binary" }];
  const diff = { revision_id: "b", against: "a", added: ["n"], removed: ["o"], changed: [...changed, ...others] };
  const bucket = { revisionNamed: async () => "b", diff: async () => diff };
  const before = Object.entries(process.env).filter(([name]) => ["TERM", "NO_COLOR"].includes(name));
  const shownWith = async (env: Record<string, string>) => {
    for (const name of ["TERM", "NO_COLOR"]) delete process.env[name];
    Object.assign(process.env, env);
    return await shown(t, showDifferences, bucket);
  };
  t.after(() => {
    for (const name of ["TERM", "NO_COLOR"]) delete process.env[name];
    Object.assign(process.env, Object.fromEntries(before));
  });
  const plain = "removed: o\nadded: n\nchanged: ops.conf, mode 0644 to 0755\n-old\n+new\nchanged: a.bin, is no text\n";
  assert.equal(await shownWith({ TERM: "dumb" }), plain);
  assert.equal(await shownWith({ TERM: "xterm", NO_COLOR: "1" }), plain);
  assert.match(await shownWith({ TERM: "xterm" }), /\u001b\[31m-old\u001b\[39m\n\u001b\[32m\+new/);
});

test("the status begins with what is wrong, one line each, and tells what comes next", async (t) => {
  const id = uuidV7();
  const problem = { kind: "failed", job: "web", action: "start", workers: ["10.0.0.1", "10.0.0.2"], worker_count: 2, run_id: id };
  const reasons = [`\`make start\` of job web on 10.0.0.1 failed: exit code 2: ${LONG}`, "no answer", ""];
  reasons[3] = "`make start` of job web on 10.0.0.1 failed: exit code 2:\nOSError: Address already in use\nmore";
  const items = Array.from({ length: 12 }, (_, index) => ({
    ...problem,
    ...(index === 1 && { kind: "unreachable", job: null }),
    reason: reasons[index] ?? "why",
  }));
  const soon = (days: number) => new Date(Date.now() + days * 86_400_000).toISOString();
  const cert = { job: "web", worker: "10.0.0.1", cert: "tls" };
  const summary = {
    ...{
      built_at: AT,
      workers: 1,
      jobs: 1,
      counts: { allocations: 1, promoted: 1, new: 0, update: 0, disabled: 0 },
      problems: { items, total: 12 },
    },
    active_run: { id, kind: "deploy", created_at: soon(-3), dry_run: true },
    last_deploy: { id, status: "failed", finished_at: soon(-1), created_at: AT },
    drift: {
      ...{ id, status: "failed", finished_at: soon(-1), created_at: AT },
      ...{ workers: { in_sync: 3, drifted: 1, not_started: 2 }, total: 1, allocations: [{ ...cert, files: 2 }] },
    },
    certs: {
      items: [
        { ...cert, not_after: soon(3.001) },
        { ...cert, not_after: soon(-2) },
      ],
      total: 9,
    },
    next_cert: null,
    freezes: [{ from: soon(-1), to: soon(1), reason: "audit\nrunning       nothing" }],
    messages: { waiting: 1, failed: 0 },
    key_changes: [{ kind: "kv_rekey", since: soon(-2), left: "not all is sealed", next: "ops kv rekey" }],
    unwell: { items: [], total: 0 },
    incidents: { items: [{ subject: "Run failed: gc", opened_at: soon(-1) }], total: 7 },
  };
  const waiting = [{ position: 1, kind: "build", by: { address: "192.0.2.7" }, since: soon(-0.5) }];
  const textWith = (workers: Record<string, number>) =>
    shown(t, statusCommand, {
      summary: async () => ({ ...summary, drift: { ...summary.drift, workers, total: 0, allocations: [] } }),
      line: async () => ({ waiting, holder: null }),
      place: async () => "shop/live",
    });
  assert.match(await textWith({ in_sync: 4 }), /\ndrift +none, 24 h ago: ops/);
  assert.match(await textWith({ cancelled: 1 }), /\ndrift +nothing known, 24 h ago: ops runs show \w{8}\n +1 worker cancelled\n/);
  const text = await shown(t, statusCommand, {
    summary: async () => summary,
    line: async () => ({ waiting, holder: null }),
    place: async () => "shop/live",
  });
  const lines = text.split("\n");
  assert.ok(
    lines.every((line) => line.length <= 80),
    text,
  );
  assert.match(lines[1] ?? "", new RegExp(`^web@10\\.0\\.0\\.\\[1-2\\]  x+…  ops runs show ${shortId(id)}$`));
  assert.match(lines[2] ?? "", /^10\.0\.0\.\[1-2\] +unreachable: no answer +ops runs show /);
  assert.match(lines[4] ?? "", /^web@10\.0\.0\.\[1-2\] +OSError: Address already.* ops runs show /);
  assert.match(text, /\nand 2 more: ops cat deployments --outcome failed,unreachable\n\nbucket /);
  assert.match(text, /\nincidents +Run failed: gc, 24 h ago: ops notify incidents\n +and 6 more\n/);
  assert.match(text, /\nfleet +1 worker, 1 job, 1 allocation: 1 promoted\n/);
  assert.match(
    text,
    /\nrunning +deploy \(dry run\) since 3 d: ops runs follow \w{8}\nin line +1\. build of 192\.0\.2\.7, for 12 h\n/,
  );
  assert.match(text, /\nkey change +kv\.key, for 2 d; go on with: ops kv rekey\n +not all is sealed\n/);
  assert.match(text, /: audit\\x0arunning {7}nothing\n/, "a reason stays one line");
  assert.match(text, /\nlast deploy +failed, 24 h ago: ops runs show /);
  assert.match(
    text,
    /\ndrift +1 allocation changed by hand, 24 h ago: ops runs show \w{8}\n +web@10\.0\.0\.1: 2 files\n +2 workers not started\n/,
  );
  assert.match(text, /\ncertificates +web@10\.0\.0\.1 tls ends in 3 d\n +web@10\.0\.0\.1 tls has ended 2 d ago\n +and 7 more\n/);
});

import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { buffer } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { type Command, parseFlags } from "../../../lib/cli/base/flags.ts";
import { COMMANDS } from "../../../lib/cli/main.ts";
import { targetOf } from "../../../lib/cli/remote/target.ts";
import { Failure } from "../../../lib/core/errors.ts";
import type { HttpRequest } from "../../../lib/http/message.ts";
import { findRoute } from "../../../lib/http/router.ts";
import { component } from "../../../lib/server/routes/shapes.ts";
import { ROUTES } from "../../../lib/server/routes/table.ts";
import { ops } from "../../../scripts/local-server.ts";
import { TestServer, TOKEN } from "../../helpers/server.ts";
import { archiveBytes, readTree } from "../../helpers/sources.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeWorkspace } from "../../helpers/workspace.ts";

const HOST = "127.0.0.1";
const LATER = "2099-01-01T00:00:00.000Z";

/** Routes that no command uses, with the reason. */
const NOT_FOR_COMMANDS: Readonly<Record<string, string>> = {
  "GET /metrics": "for Prometheus",
  "GET /openapi.yaml": "for programs and readers of the API",
  "GET /openapi.json": "for programs and readers of the API",
  "GET /api/auth/session": "the console asks whether it is still signed in; a command finds that out by its first request",
  "GET /api/events": "keeps the pages of the console up to date",
  "GET /api/summary": "the console's page of all buckets; ops buckets list shows the same of each",
  "GET /health/changes": "the console's strips; ops health shows how things are now, since when and how often",
  "GET /map": "a picture of the console; ops cat deployments shows the same as a table",
  "GET /map/{job}/{worker}": "a square of that picture",
  "GET /files": "the console's view of the source; whoever pushes has the source",
  "GET /files/{path*}": "the console's view of the source",
  "GET /templates": "the console's form for a new job; ops job create reads the folder",
  "GET /workspace/disabled.json": "the console's view of the source",
  "GET /settings/maand": "the console's view of the source",
  "GET /settings/bucket": "the console's view of the source",
  "GET /settings/job_resources/{selector}": "the console's view of the source",
  "GET /workers": "the console's view of the source; ops cat workers shows what was built",
  "GET /workers/facts": "the console's view of the last facts; ops worker facts asks the workers",
  "GET /jobs/{job}/files": "the console's view of what was built; ops deploy --dry-run shows the files",
  "GET /jobs/{job}/files/{path*}": "one of these files",
  "GET /runs/{run_id}/plan": "the console's view of a dry run, which its command prints",
  "GET /runs/{run_id}/evidence": "the console's box of reasons; a command prints the whole log",
  "GET /runs/{run_id}/logs/map": "the console's log view: it shows a part of a log",
  "GET /runs/{run_id}/logs/search": "the console's log view; a command's output goes to grep",
  "GET /runs/{run_id}/logs/text": "a download of the console; ops runs log prints the same",
  "GET /runs/{run_id}/activity.log": "a download of the console; ops runs log prints the same",
  "GET /runs/{run_id}/activity.times": "the times of that download",
};

const BUSY = { error: "bucket_busy", message: "bucket busy", details: { position: 1 } };

/** A route as the list above names it. */
function routeName({ method, path: place }: { method: string; path: string }): string {
  return `${method} ${place.replace("/api/buckets/{bucket_id}/", "/")}`;
}

/**
 * A real server behind a listener that notes the route of each request. The listener itself answers what would start or stop a
 * run, with a run that has ended, and what needs a second factor.
 */
async function notingServer(t: TestContext) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket({ project: "shop", name: "live" });
  const cwd = temporaryFolder(t);
  makeWorkspace(cwd, { jobs: { web: { version: "1.0.0", selectors: ["worker"] } }, workers: [HOST] });
  const post = async (target: string, body: unknown = {}, headers = {}) => {
    const { run_id } = (await server.call("POST", `${bucket.path}/${target}`, { body, headers })).body;
    return (await server.ended(bucket.path, run_id)) as { id: string; status: string; revision: string };
  };
  const source = Object.fromEntries(Object.entries(readTree(cwd)).filter(([name]) => !name.endsWith("/")));
  const run = await post("push", await archiveBytes(source), { "content-type": "application/x-tar" });
  assert.equal((await post("snapshots")).status, "succeeded");
  const [snapshot] = (await server.call("GET", `${bucket.path}/snapshots`)).body.items;
  const noted = new Set<string>();
  const own = (request: IncomingMessage): [status: number, body: unknown] | undefined => {
    const { pathname } = new URL(request.url ?? "", server.url);
    const { route } = findRoute(ROUTES, { method: request.method, path: pathname, query: "" } as HttpRequest);
    const name = routeName(route);
    noted.add(name);
    if (request.headers["ops-wait"] !== undefined) return [409, BUSY];
    if (route.answer.shape?.schema.$ref === component("RunStarted").schema.$ref) return [202, { run_id: run.id }];
    if (name === "POST /runs/{run_id}/cancel") return [202, run];
    if (name === "POST /api/auth/totp/verify") return [200, { expires_at: LATER }];
    return name === "DELETE /queue/{start_key}" ? [204, undefined] : undefined;
  };
  const handle = async (request: IncomingMessage, response: ServerResponse) => {
    const answer = own(request);
    const body = await buffer(request);
    if (answer) return void response.writeHead(answer[0], { "Content-Type": "application/json" }).end(JSON.stringify(answer[1]));
    const headers = request.headers as Record<string, string>;
    const { host: _, connection: __, "content-length": ___, "transfer-encoding": ____, origin, ...kept } = headers;
    const real = await fetch(server.url + request.url, {
      method: request.method ?? "GET",
      headers: { ...kept, ...(origin && { origin: server.url }) },
      ...(body.length > 0 && { body: new Uint8Array(body) }),
    });
    response.writeHead(real.status, Object.fromEntries(real.headers)).end(Buffer.from(await real.arrayBuffer()));
  };
  const front = createServer(handle).listen(0, "127.0.0.1");
  await new Promise((resolve) => front.once("listening", resolve));
  t.after(() => front.close());
  const url = `http://127.0.0.1:${(front.address() as AddressInfo).port}`;
  const outer = { ...process.env };
  t.after(() => {
    process.env = outer;
  });
  Object.assign(process.env, {
    OPS_SERVER: url,
    OPS_BUCKET: bucket.id,
    OPS_SERVE_TOKEN: TOKEN,
    XDG_STATE_HOME: temporaryFolder(t),
  });
  const key = path.join(cwd, "key");
  writeFileSync(key, generateKeyPairSync("ed25519").privateKey.export({ type: "pkcs8", format: "pem" }), { mode: 0o600 });
  const revision = run.revision;
  const wish = { kind: "run_command", params: { command: "df" } };
  const { id: proposal } = (await server.call("POST", `${bucket.path}/proposals`, { body: wish })).body;
  /** What stands for each operand of a command. */
  const sample: Record<string, string> = {
    ...{ job: "web", jobs: "web", worker: HOST, command: "df", hook: "look", run: run.id, revision, against: revision },
    ...{ namespace: "ops/bucket", key: "bucket_id", path: "rules.yaml", file: key, snapshot: snapshot.name },
    ...{
      bucket: bucket.id,
      proposal,
      target: "slack",
      message: run.id,
      label: "shop/live",
      what: "bucket",
      name: bucket.id,
      base_url: url,
    },
    folder: path.join(cwd, "exported"),
    ...{ token: "ada", session: "" },
  };
  return { noted, cwd, sample };
}

/** Carries a command out in this process, as `main.ts` does, and drops what it prints. How it ends does not matter. */
async function carryOut(t: TestContext, command: Command, args: readonly string[]): Promise<void> {
  const parsed = parseFlags(command, args);
  const target = await targetOf(parsed);
  const dropped = (["stdout", "stderr"] as const).map((name) => {
    const write = process[name].write.bind(process[name]);
    // The reporter of the tests writes bytes.
    const drop = (chunk: string | Uint8Array, taken?: unknown) => {
      if (typeof chunk !== "string") return write(chunk);
      if (typeof taken === "function") taken();
      return true;
    };
    return t.mock.method(process[name], "write", drop);
  });
  try {
    await (command.remote && target ? command.remote(parsed, target) : command.run?.(parsed));
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
  } finally {
    for (const one of dropped) one.mock.restore();
  }
}

test("each route has a command that uses it, or a reason why no command does", async (t) => {
  const { noted, sample, cwd } = await notingServer(t);
  const isDoneLast = ({ name }: Command) => /delete|logout|sessions end/.test(name);
  const typed = COMMANDS.filter(({ name, remote }) => remote || /^(push|log(in|out))\b/.test(name)).toSorted(
    (a, b) => Number(isDoneLast(a)) - Number(isDoneLast(b)),
  );
  const flags: Record<string, string[][]> = {
    ...{
      login: [["--totp", "123456"]],
      "job run": [["--target", "start"]],
      "buckets delete": [["--yes"]],
      gc: [["--wait=1s"], []],
      reject: [["--reason", "no"]],
      "buckets set": [["--approvals", "0"]],
    },
    ...{ push: [["--dir", cwd]], logs: [[], ["--tail", "1"]] },
  };
  for (const command of typed)
    for (const more of flags[command.name] ?? [[]]) {
      const operands = (command.operands ?? []).map(({ name }) => sample[name]);
      assert.ok(!operands.includes(undefined), `no sample for an operand of ops ${command.name}`);
      // `ops logs` is about runs without a job, and about a job with one.
      const given = command.name === "logs" && more.length > 0 ? [] : (operands as string[]);
      // Its value comes from stdin.
      if (command.name.endsWith(" set-secret")) await ops([...command.name.split(" "), ...given], { input: "secret" });
      else await carryOut(t, command, [...given, ...more]);
    }
  const all = ROUTES.map(routeName);
  const unused = all.filter((name) => !noted.has(name));
  assert.deepEqual(unused.toSorted(), Object.keys(NOT_FOR_COMMANDS).toSorted());
});

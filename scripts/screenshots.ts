// `npm run screenshots`: writes every view of the console, wide and narrow, to screenshots/; with a folder as argument,
// there. What they show is real: a server, a bucket with the example hello, deployed to three workers on this machine.
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { ConsolePage, VIEWS } from "../test/helpers/browser.ts";
import { Example } from "./example.ts";
import { LocalServer } from "./local-server.ts";

const WIDTHS = [1440, 390] as const;

const target = path.resolve(process.argv[2] ?? fileURLToPath(new URL("../screenshots", import.meta.url)));
mkdirSync(target, { recursive: true });
const folder = mkdtempSync(path.join(tmpdir(), "ops-screenshots-"));
const server = await LocalServer.start(path.join(folder, "root"));
const example = await Example.copy("hello", folder, 2);
const bucket = await server.createBucket("hello");
try {
  await fill();
  for (const width of WIDTHS) for (const colorScheme of ["light", "dark"] as const) await shoot(width, colorScheme);
} finally {
  await example.stop(bucket);
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
}

/** What there is to see: three buckets, two revisions, runs of several kinds, one that failed. */
async function fill(): Promise<void> {
  for (const [project, name] of [
    ["demo", "cache"],
    ["payments", "ledger"],
  ])
    await server.call("POST", "/api/buckets", { project, name });
  await server.push(bucket, example.source);
  await server.run(bucket, "deploy");
  await server.push(bucket, example.source);
  await server.run(bucket, "run_command", { command: "echo the disk is gone >&2; exit 3" });
  for (let reading = 0; reading < 8; reading++) await attempt("workers/sysstat");
  for (const kind of ["workers/facts", "workers/uptime", "drift", "snapshots"]) await attempt(kind);
  await attempt("run_command", { command: "uname -sr; echo $((RANDOM % 2))", concurrency: 3 });
  await attempt("deploy", { dry_run: true, force: true });
  await server.run(bucket, "deploy", { force: true });
}

/** Some servers do not offer everything; what is missing is seen in the pictures. */
async function attempt(kind: string, params: unknown = {}): Promise<void> {
  const { status, body } = await server.call<{ run_id: string }>("POST", `/api/buckets/${bucket}/${kind}`, params);
  if (status === 202) await server.follow(bucket, body.run_id);
  else process.stderr.write(`${kind}: ${status} ${JSON.stringify(body)}\n`);
}

/** Once at each width and in each colour scheme. */
async function shoot(width: number, colorScheme: "light" | "dark"): Promise<void> {
  const console = await ConsolePage.open(server.url, { width, height: width > 600 ? 900 : 844, colorScheme });
  const { page } = console;
  const take = async (name: string) => {
    await console.settled();
    await page.waitForTimeout(400);
    await page.screenshot({ path: path.join(target, `${name}-${width}-${colorScheme}.png`) });
  };
  await console.goTo("");
  await take("sign-in");
  await console.signIn(server.token);
  await console.link("hello").waitFor();
  await take("buckets");
  for (const view of VIEWS) {
    await console.view(bucket, view);
    await take(view === "" ? "overview" : view.replace("/", "-"));
  }
  await console.view(bucket, `jobs/${await firstOf("cat/jobs", "job")}`);
  await take("job");
  const run = await firstOf("runs?kind=deploy", "id");
  for (const tab of ["summary", "hosts", "compare"]) {
    await console.view(bucket, `runs/${run}/${tab}`);
    await take(tab === "summary" ? "run" : `run-${tab}`);
  }
  await console.goTo("#/");
  await page.locator("body").press("?");
  await take("keys");
  await console.goTo("docs/#get_buckets_bucket_id_runs");
  await take("api");
  console.checkPeace();
  await console.close();
}

async function firstOf(list: string, field: string): Promise<string> {
  const { body } = await server.call<{ items: Record<string, string>[] }>("GET", `/api/buckets/${bucket}/${list}`);
  return body.items[0]?.[field] ?? "";
}

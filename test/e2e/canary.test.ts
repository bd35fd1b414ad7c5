import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { ROUTES } from "../../lib/server/routes/table.ts";
import { LocalServer, ops, PROGRAM } from "../../scripts/local-server.ts";
import { writeTree } from "../helpers/sources.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

/** Has something in it that each form writes in another way. */
const SECRET = `c4nary/"quo'te$ \\end+=&ümlaut-7f3a9b`;
const FORMS: Readonly<Record<string, string>> = {
  raw: SECRET,
  base64: Buffer.from(SECRET).toString("base64"),
  base64url: Buffer.from(SECRET).toString("base64url"),
  url: encodeURIComponent(SECRET),
  json: JSON.stringify(SECRET).slice(1, -1),
  shell: SECRET.replaceAll("'", "'\\''"),
  /** Without what any form escapes. */
  part: "ümlaut-7f3a9b",
  end: "mlaut-7f3a9b",
};

const PRINTER = `import base64, json, shlex, sys, time, urllib.parse
text = open(sys.argv[1], encoding="utf-8").read().strip()
for form in [text, base64.b64encode(text.encode()).decode(), base64.urlsafe_b64encode(text.encode()).decode(),
             urllib.parse.quote(text, safe="!'()*-._~"), urllib.parse.quote(text, safe=""), urllib.parse.quote_plus(text),
             json.dumps(text, ensure_ascii=False), json.dumps(text), shlex.quote(text)]:
    print("out", form, "end")
    print("err", form, "end", file=sys.stderr)
time.sleep(0.3)
`;
const HOOK = `import ops
value = ops.get_kv_value("secrets/job/web", "password")
print("the hook says", value)
`;

const SOURCE = (worker: string): Record<string, string> => ({
  "ops.conf": "",
  "workspace/workers.json": JSON.stringify([{ host: "127.0.0.1", connection: "local", root: worker }]),
  "workspace/jobs/web/manifest.json": JSON.stringify({
    version: "1.0.0",
    selectors: ["worker"],
    hooks: { tell: { executed_on: ["cli", "pre_deploy"] } },
  }),
  "workspace/jobs/web/Makefile": "start stop restart reload status:\n\t@python3 bin_printer.py secret.conf\n",
  "workspace/jobs/web/bin_printer.py": PRINTER,
  "workspace/jobs/web/secret.conf.tpl": '{{ getSecret "password" }}\n',
  "workspace/jobs/web/_hooks/tell.py": HOOK,
});

/** The forms of the secret that are in some bytes. */
function formsIn(bytes: Buffer | string): string[] {
  return Object.keys(FORMS).filter((name) => bytes.includes(FORMS[name] as string));
}

/** All regular files below a folder that hold the secret in some form. */
function filesWithSecret(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name))
    .filter((file) => formsIn(readFileSync(file)).length > 0);
}

/** Looks at the arguments and the environment of every process, again and again, until it is stopped. */
function watchProcesses(t: TestContext) {
  const found = new Set<string>();
  const looked = { processes: 0 };
  const look = () => {
    for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name) && name !== String(process.pid)))
      for (const part of ["cmdline", "environ"])
        try {
          const forms = formsIn(readFileSync(`/proc/${pid}/${part}`));
          looked.processes++;
          if (forms.length > 0) found.add(`${part} of ${readFileSync(`/proc/${pid}/cmdline`, "utf8")}: ${forms}`);
        } catch {
          // It has gone, or is somebody else's.
        }
  };
  const timer = setInterval(look, 15);
  t.after(() => clearInterval(timer));
  return { found, looked };
}

async function setSecret(bucketFolder: string): Promise<void> {
  const child = spawn(process.execPath, [PROGRAM, "kv", "set-secret", "web", "password", "--bucket-dir", bucketFolder]);
  child.stdin.end(SECRET);
  const [code] = await once(child, "exit");
  assert.equal(code, 0);
}

test("T-100 CP-128 CP-129 a secret that a template, a hook and a Makefile read is in no log, answer, database, argument or environment", async (t) => {
  const folder = temporaryFolder(t);
  const [root, worker, source] = ["root", "worker", "source"].map((name) => path.join(folder, name)) as [string, string, string];
  const server = await LocalServer.start(root);
  t.after(() => server.stop("SIGKILL"));
  const bucket = await server.createBucket();
  writeTree(source, SOURCE(worker));
  const { found, looked } = watchProcesses(t);
  const env = { OPS_SERVE_TOKEN: server.token };
  const pushed = await ops(["push", server.url, "--bucket", bucket, "--dir", source], { env });
  assert.equal(pushed.code, 0, pushed.stderr);
  await setSecret(path.join(root, bucket));
  const said: string[] = [];
  const runs: string[] = [];
  for (const [kind, params] of [
    ["build", {}],
    ["deploy", {}],
    ["hooks", { hook: "tell" }],
    ["deploy", { force: true }],
  ] as const) {
    const run = await server.run(bucket, kind, params, (text) => said.push(text));
    assert.equal(run.status, "succeeded", `${kind}: ${run.error}\n${said.join("")}`);
    runs.push(run.id);
  }
  const text = said.join("");
  assert.ok((text.match(/out \S*\*\*\*\S* end/g) ?? []).length >= 9, text);
  assert.match(text, /the hook says \*\*\*/);
  assert.deepEqual(formsIn(text), []);
  assert.deepEqual([...found], []);
  assert.ok(looked.processes > 100);

  const answers = await everyAnswer(server, bucket, runs);
  assert.ok(answers.length > 20);
  for (const [target, body] of answers) assert.deepEqual(formsIn(body), [], target);
  assert.deepEqual(formsIn(server.log), []);
  // Of all that was written, on the server and on the worker, only the file that the template is for has it.
  const rendered = path.join(worker, bucket, "jobs", "web", "secret.conf");
  assert.equal(readFileSync(rendered, "utf8"), `${SECRET}\n`);
  assert.deepEqual(filesWithSecret(folder), [rendered]);
  await server.stop();
  assert.deepEqual(filesWithSecret(folder), [rendered]);
});

/** What every GET of the route table answers about this bucket and these runs. */
async function everyAnswer(server: LocalServer, bucket: string, runs: readonly string[]): Promise<[string, string][]> {
  const targets = ROUTES.filter(({ method }) => method === "GET").flatMap(({ path: where }) =>
    (where.includes("{run_id}") ? runs : [""]).map((run) =>
      where
        .replace("{bucket_id}", bucket)
        .replace("{run_id}", run)
        .replace("{job}", "web")
        .replace("{selector}", "default")
        .replace("{path*}", where.includes("/jobs/") ? "secret.conf.tpl" : "workspace/jobs/web/secret.conf.tpl"),
    ),
  );
  const headers = { authorization: `Bearer ${server.token}` };
  return Promise.all(
    targets.map(async (target) => {
      const query = target.endsWith("/search") ? "?q=say" : /logs$|events$/.test(target) ? "?timeout=0" : "";
      return [target, await (await fetch(server.url + target + query, { headers })).text()] as [string, string];
    }),
  );
}

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { jobsJson, RUNNER_PATH, runnerText } from "../../lib/transport/ask/runner.ts";
import { CommandPlace, HOST, WAYS } from "../helpers/hook-commands.ts";
import { HookScripts } from "../helpers/hook-scripts.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const DIFFICULT = [
  "plain",
  'it\'s "quoted" `twice` $(once) $HOME $X',
  "; & | < > * ? [a] {b,c} ~ # ! % ^ = \\ \\\\ \\n",
  "  two\nlines\n\n  and\ttabs  \r",
  "-n -e --",
  "ümläut 漢字 \u{1F600}",
  "'",
  '"',
  "\\",
];

for (const way of WAYS) {
  test(`HR-291 run_ssh runs a command line on a worker (${way}) and gives its outputs and exit code`, async (t) => {
    const place = await CommandPlace.make(t, way);
    const text = `
done = ops.run_ssh(ops.allocation_ip(), "pwd; echo $0; echo wrong >&2; read x || echo empty; exit 3", check=False)
print(json.dumps([done.stdout, done.stderr, done.returncode]))`;
    assert.deepEqual(await place.answer(text), [`${place.folder}\nbash\nempty\n`, "wrong\n", 3]);
  });

  test(`run_ssh hands over any text as it is (${way})`, async (t) => {
    const place = await CommandPlace.make(t, way);
    const text = `
import shlex
said = [ops.run_ssh("${HOST}", "printf %s " + shlex.quote(text)).stdout for text in json.loads(sys.stdin.read())]
large = ops.run_ssh("${HOST}", "cat <<'END' | wc -c\\n" + "x" * 300_000 + "\\nEND").stdout
print(json.dumps([said, int(large)]))`;
    const input = JSON.stringify(DIFFICULT);
    const { stdout, stderr } = await place.scripts.run("py", text, place.env, { input });
    assert.deepEqual([stderr, JSON.parse(stdout)], ["", [DIFFICULT, 300_001]]);
  });

  test(`run_ssh runs what bash understands, several lines and pipes too (${way})`, async (t) => {
    const place = await CommandPlace.make(t, way);
    const text = `
script = """set -euo pipefail
words=(one two)
if [[ \${words[1]} == t* ]]; then echo "\${#words[@]} words" | tr a-z A-Z; fi
false | cat
echo never"""
done = ops.run_ssh("${HOST}", script, check=False)
print(json.dumps([done.stdout, done.returncode]))`;
    assert.deepEqual(await place.answer(text), ["2 WORDS\n", 1]);
  });

  test(`a command that fails raises CalledProcessError without the command's text (${way})`, async (t) => {
    const place = await CommandPlace.make(t, way);
    const text = `
try:
    ops.run_ssh("${HOST}", "echo out; echo no such role >&2; SECRET=hidden; exit 7")
except subprocess.CalledProcessError as error:
    print(json.dumps([error.returncode, error.stdout, error.stderr, str(error)]))`;
    const message = `the command on ${HOST} ended with exit code 7: no such role`;
    assert.deepEqual(await place.answer(text), [7, "out\n", "no such role\n", message]);
  });

  for (const [what, command] of [
    ["with children", "true; echo begun; sleep 300 & sleep 300"],
    ["that ignores TERM", "trap '' TERM; echo begun; while :; do sleep 300; done"],
  ] as const)
    test(`a command ${what} that is out of time raises TimeoutExpired and is ended (${way})`, async (t) => {
      const place = await CommandPlace.make(t, way);
      const text = `
try:
    ops.run_ssh("${HOST}", ${JSON.stringify(command)}, timeout=0.5)
except subprocess.TimeoutExpired as error:
    print(json.dumps([error.timeout, error.stdout]))`;
      assert.deepEqual(await place.answer(text), [0.5, "begun\n"]);
      await place.isEmpty();
    });

  test(`HR-291 when the script is killed its command ends on the worker (${way})`, async (t) => {
    const place = await CommandPlace.make(t, way);
    const stop = new AbortController();
    const text = `ops.run_ssh("${HOST}", "sleep 300 & sleep 300")`;
    const ended = place.scripts.run("py", text, place.env, { signal: stop.signal });
    await until("the command runs", () => place.processes.length > 2);
    stop.abort();
    assert.equal((await ended).reason, "cancelled");
    await place.isEmpty();
  });

  test(`nothing of a command is in the arguments of any process (${way})`, async (t) => {
    const place = await CommandPlace.make(t, way);
    const text = `
done = ops.run_ssh("${HOST}", "word=hid-" + "den; cat /proc/[0-9]*/cmdline /proc/self/environ | tr '\\\\0' '\\\\n' | grep -ac hid-[d]en", check=False)
print(json.dumps(done.stdout))`;
    assert.equal(await place.answer(text), "0\n");
  });

  test(`what a command leaves running with outputs of its own goes on (${way})`, async (t) => {
    const place = await CommandPlace.make(t, way);
    const text = `
done = ops.run_ssh("${HOST}", "sleep 300 >/dev/null 2>&1 & echo $!")
print(done.stdout)`;
    const pid = await place.answer(text);
    assert.deepEqual(place.processes, [pid]);
  });

  test(`where the bucket has no folder on the worker yet, a command runs in / (${way})`, async (t) => {
    const place = await CommandPlace.make(t, way, { isNew: true });
    assert.equal(await place.answer(`print(json.dumps(ops.run_ssh("${HOST}", "pwd").stdout))`), "/\n");
  });

  test(`HR-292 HR-293 run_runner_target and run_make_target run a target of the job (${way})`, async (t) => {
    const place = await CommandPlace.make(t, way);
    const job = path.join(place.folder, "jobs", "web");
    mkdirSync(job, { recursive: true });
    mkdirSync(path.join(place.folder, "bin"));
    writeFileSync(path.join(place.folder, RUNNER_PATH), runnerText(), { mode: 0o755 });
    writeFileSync(path.join(place.folder, "jobs.json"), jobsJson([{ job: "web", disabled: false }]));
    writeFileSync(path.join(job, "Makefile"), "status:\n\t@pwd\nbroken:\n\t@exit 4\nslow:\n\t@sleep 300\n");
    const text = `
print(ops.run_runner_target("status").stdout, end="")
print(ops.run_make_target("status", worker_ip="${HOST}", job="web").stdout, end="")
for call in [lambda: ops.run_runner_target("broken"), lambda: ops.run_make_target("broken"),
             lambda: ops.run_runner_target("status", job="other"), lambda: ops.run_runner_target("a b; c")]:
    try:
        call()
    except subprocess.CalledProcessError as error:
        print(error)
try:
    ops.run_runner_target("slow", timeout=2)
except subprocess.TimeoutExpired as error:
    print(error)`;
    const { stdout } = await place.scripts.succeed("py", text, place.env);
    const failed = `the command on ${HOST} ended with exit code`;
    const lines = stdout.trim().split("\n");
    assert.deepEqual(lines[0], job);
    const made = lines.slice(1, -5).filter((line) => !/^make: (Entering|Leaving)/.test(line));
    assert.deepEqual(made, [job]);
    // The runner passes both outputs of make on in one.
    assert.match(lines.at(-5) ?? "", new RegExp(`^${failed} 2: make: .* Error 4$`));
    assert.match(lines.at(-4) ?? "", new RegExp(`^${failed} 2: make: .* Error 4$`));
    assert.match(lines.at(-3) ?? "", new RegExp(`^${failed} 65: runner: the job other is not allocated`));
    assert.equal(lines.at(-2), `${failed} 64: runner: "a b; c" is not the name of a target`);
    assert.match(lines.at(-1) ?? "", /timed out after 2 seconds/);
    await place.isEmpty();
  });
}

test("HR-291 when the script is killed before its command has a group of its own, nothing of it stays", async (t) => {
  const tools = temporaryFolder(t);
  const waiting = path.join(tools, "waiting");
  const slow = `#!/bin/sh\ntouch '${waiting}'\nsleep 1\nexec /usr/bin/setsid "$@"\n`;
  writeFileSync(path.join(tools, "setsid"), slow, { mode: 0o755 });
  const place = await CommandPlace.make(t, "ssh", { fleet: { env: { PATH: `${tools}:${process.env.PATH}` } } });
  const stop = new AbortController();
  const ended = place.scripts.run("py", `ops.run_ssh("${HOST}", "sleep 300")`, place.env, { signal: stop.signal });
  await until("the command is about to run", () => existsSync(waiting));
  stop.abort();
  assert.equal((await ended).reason, "cancelled");
  await until("its end", () => place.fleet.shells.length === 0);
  await place.isEmpty();
});

test("HR-028 run_ssh goes over the connection of the run, which is opened again where it is gone", async (t) => {
  const place = await CommandPlace.make(t, "ssh");
  const text = `print(json.dumps([ops.run_ssh("${HOST}", "echo fine").stdout for _ in range(2)]))`;
  assert.deepEqual(await place.answer(text), ["fine\n", "fine\n"]);
  assert.equal(place.fleet.logins, 1);
  place.fleet.cut();
  assert.deepEqual(await place.answer(text), ["fine\n", "fine\n"]);
  assert.equal(place.fleet.logins, 2);
});

test("more commands at once than a connection has sessions all succeed", async (t) => {
  const place = await CommandPlace.make(t, "ssh");
  const text = `
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(16) as pool:
    print(json.dumps(list(pool.map(lambda n: ops.run_ssh("${HOST}", f"sleep 0.3; echo {n}").stdout, range(16)))))`;
  assert.deepEqual(
    await place.answer(text),
    Array.from({ length: 16 }, (_, index) => `${index}\n`),
  );
});

test("HR-339 a worker that cannot be reached is exit code 255, with the reason", async (t) => {
  const place = await CommandPlace.make(t, "ssh");
  await place.fleet.sshd.stop();
  const text = `
done = ops.run_ssh("${HOST}", "true", check=False, connect_timeout=3)
print(json.dumps([done.returncode, done.stderr]))`;
  const [code, said] = (await place.answer(text)) as [number, string];
  assert.equal(code, 255);
  assert.match(said, /^Cannot connect to worker 127\.0\.0\.2: .*\n$/);
});

test("a worker that hangs does not hold the script longer than the time, and some seconds to end the command", async (t) => {
  const place = await CommandPlace.make(t, "ssh");
  const text = `
try:
    ops.run_ssh("${HOST}", "echo begun; sleep 0.5; touch begun; sleep 300", timeout=3)
except subprocess.TimeoutExpired as error:
    print(json.dumps(error.stdout))`;
  const answer = place.answer(text);
  // What it said has had the time to arrive before nothing comes any more.
  await until("the command runs", () => existsSync(path.join(place.folder, "begun")));
  place.fleet.freeze();
  assert.equal(await answer, "begun\n");
});

/** A `sudo` that notes how it was called, and an `id` for which the user is not root. */
function fakeSudo(folder: string): string {
  const sudo = `#!/bin/sh\necho "$*" >>'${folder}/log'; shift; PATH=\${PATH#*:} IS_ROOT=1 exec "$@"\n`;
  writeFileSync(path.join(folder, "id"), "#!/bin/sh\necho 1000\n", { mode: 0o755 });
  writeFileSync(path.join(folder, "sudo"), sudo, { mode: 0o755 });
  return `${folder}:${process.env.PATH}`;
}

test("with use_sudo a command is run by sudo -n", async (t) => {
  const folder = temporaryFolder(t);
  const fleet = { env: { PATH: fakeSudo(folder) } };
  const place = await CommandPlace.make(t, "ssh", { fleet, settings: { useSudo: true } });
  const text = `
try:
    ops.run_ssh("${HOST}", "sleep 300", timeout=0.5)
except subprocess.TimeoutExpired:
    print(json.dumps(ops.run_ssh("${HOST}", "echo $IS_ROOT").stdout))`;
  assert.equal(await place.answer(text), "1\n");
  const calls = readFileSync(path.join(folder, "log"), "utf8").trim().split("\n");
  assert.deepEqual(new Set(calls), new Set([`-n sh -c IFS= read -r ops_line; eval "$ops_line"`]));
  await place.isEmpty();
});

test("HR-337 commands are refused for a host that is no worker, outside of a session, and where they are no text", async (t) => {
  const place = await CommandPlace.make(t, "ssh");
  const text = `
def error(call):
    try:
        call()
    except Exception as e:
        return f"{type(e).__name__}: {e}"
says = [error(lambda: ops.run_ssh("127.0.0.9", "true"))]
says += [error(lambda: ops.run_ssh("${HOST}", bad)) for bad in ["a\\0b", os.fsdecode(b"a\\xff")]]
del os.environ["ALLOCATION_ID"]
print(json.dumps([*says, error(lambda: ops.run_ssh("${HOST}", "true"))]))`;
  const noText = "ValueError: a command cannot hold NUL characters or bytes that are not UTF-8";
  assert.deepEqual(await place.answer(text), [
    "ValueError: '127.0.0.9' is not a worker of this bucket",
    noText,
    noText,
    "RuntimeError: ALLOCATION_ID is not set: workers can be reached only from a script that ops runs",
  ]);
});

test("HR-338 of an output that is longer than run_output_limit the beginning comes, and a line that says so", async (t) => {
  const place = await CommandPlace.make(t, "ssh", { outputLimit: 8 });
  const text = `
done = ops.run_ssh("${HOST}", "seq 1000; echo short >&2")
print(json.dumps([done.stdout, done.stderr]))`;
  assert.deepEqual(await place.answer(text), ["1\n2\n3\n4\n\n… more was not kept (run_output_limit)\n", "short\n"]);
});

const CONFS: [string, string | undefined, unknown][] = [
  ["what it says", "ssh_user = \"deploy\" # note\nssh_key='my.key'\nuse_sudo = true\n", ["deploy", "my.key", true]],
  ["its defaults", "certs_ttl = 30\n", ["agent", "worker.key", false]],
  ["no file", undefined, ["agent", "worker.key", true]],
  ["no table's keys", '[ssh_options]\nssh_user = "x"\n', ["agent", "worker.key", false]],
];
for (const [what, conf, expected] of CONFS)
  test(`HR-290 load_ssh tells user, key and use_sudo of ops.conf: ${what}`, async (t) => {
    const root = temporaryFolder(t);
    if (conf !== undefined) writeFileSync(path.join(root, "ops.conf"), conf);
    mkdirSync(path.join(root, "secrets"));
    for (const name of ["my.key", "worker.key"]) writeFileSync(path.join(root, "secrets", name), "");
    const text = `
user, key, use_sudo = ops.load_ssh()
assert key == ops.find_bucket_root() / "secrets" / key.name
print(json.dumps([user, key.name, use_sudo]))`;
    assert.deepEqual(await new HookScripts(t).answer("py", text, { BUCKET_ROOT: root }), expected);
  });

test("load_ssh refuses what it cannot read, and a key that is not there", async (t) => {
  const root = temporaryFolder(t);
  const scripts = new HookScripts(t);
  for (const [conf, expected] of [
    ['ssh_user = "\\u0061"', `ValueError: cannot read ssh_user in ${root}/ops.conf`],
    ['use_sudo = "yes"', `ValueError: cannot read use_sudo in ${root}/ops.conf`],
    ["ssh_key = true", `ValueError: cannot read ssh_key in ${root}/ops.conf`],
    ["", `FileNotFoundError: there is no private key ${root}/secrets/worker.key`],
  ] as const) {
    writeFileSync(path.join(root, "ops.conf"), conf);
    const { exitCode, stderr } = await scripts.run("py", "ops.load_ssh()", { BUCKET_ROOT: root });
    assert.deepEqual([exitCode, stderr.trim().split("\n").at(-1)], [1, expected]);
  }
});

test("find_bucket_root looks from the working folder upwards, then from the helper's own", async (t) => {
  const root = temporaryFolder(t);
  const deep = path.join(root, "a", "b");
  mkdirSync(deep, { recursive: true });
  writeFileSync(path.join(root, "ops.conf"), "");
  const scripts = new HookScripts(t);
  const print = "print(ops.find_bucket_root())";
  assert.equal((await scripts.run("py", print, {}, { cwd: deep })).stdout, `${root}\n`);
  const nowhere = await scripts.run("py", print, {}, { cwd: "/" });
  assert.match(nowhere.stderr, /FileNotFoundError: no ops\.conf in \/ or above it: this is no bucket/);
  writeFileSync(path.join(scripts.folder, "..", "ops.conf"), "");
  const beside = await scripts.run("py", print, {}, { cwd: "/" });
  assert.equal(beside.stdout, `${path.dirname(scripts.folder)}\n`);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { migratedText } from "../../../lib/bucket/earlier/texts.ts";
import { scriptEnvironment } from "../../../lib/hook/environment.ts";

const HOOKS = new Map([
  ["web", new Set(["check", "both"])],
  ["both", new Set(["web"])],
]);
const JOB = "workspace/jobs/web";

interface Case {
  name: string;
  file: string;
  before: string;
  /** Without it nothing changes. */
  after?: string;
  looks?: number[];
}

const CASES: Case[] = [
  {
    name: "fields of a manifest keep their place and their form",
    file: `${JOB}/manifest.json`,
    before:
      '{ "version":"1","commands" : {"x": {"executed_on": ["cli"], "demands": {"job": "db",\n"command":"up", "config": {"command": 1}}}},\n"Update_Parallel_Count": 2, "deploy_parallel_count":1 }',
    after:
      '{ "version":"1","hooks" : {"x": {"executed_on": ["cli"], "demands": {"job": "db",\n"hook":"up", "config": {"command": 1}}}},\n"max_concurrent_upgrades": 2, "max_concurrent_starts":1 }',
  },
  {
    name: "a field that is there under both names stays",
    file: `${JOB}/manifest.json`,
    before: '{\n"hooks": {},\n"commands": {}}',
    looks: [3],
  },
  { name: "a hook called commands stays", file: `${JOB}/manifest.json`, before: '{"hooks":{"commands":{}}}' },
  { name: "a manifest that is no JSON stays", file: `${JOB}/manifest.json`, before: '{"commands": {}', after: '{"commands": {}' },
  { name: "a manifest elsewhere is a file like others", file: `${JOB}/conf/manifest.json`, before: '{"commands":{}}' },
  {
    name: "namespaces in the actions of a template",
    file: `${JOB}/app.conf.tpl`,
    before:
      'a {{ get "maand/bucket" "x" }} {{- keys `maand/job/web` }} {{ get "maand" "y" }} {{ getOptional "ops" "y" }} "maand/bucket"\n{{ get "vars/bucket" "maand" }}',
    after:
      'a {{ get "ops/bucket" "x" }} {{- keys `ops/job/web` }} {{ get "ops/bucket" "y" }} {{ getOptional "ops/bucket" "y" }} "maand/bucket"\n{{ get "vars/bucket" "maand" }}',
    looks: [1, 2],
  },
  {
    name: "the helper of a Python hook: import, functions, namespaces",
    file: `${JOB}/_modules/go.py`,
    before:
      'import os\nimport maand  # the helper\nmaand.put_deploy_order(["a"])\nx = maand.get_kv_value("maand/worker", "k")\ny = maand.kv_get(\n  "maand", f"maand/job/{x}")\n',
    after:
      'import os\nimport ops  # the helper\nops.put_rollout_order(["a"])\nx = ops.get_kv_value("ops/worker", "k")\ny = ops.get_store_value(\n  "ops/bucket", f"ops/job/{x}")\n',
  },
  {
    name: "a helper with a name of its own, and what was imported from it",
    file: `${JOB}/_hooks/go.py`,
    before:
      "import maand as m\nfrom maand import put_deploy_order, get_job, kv_get\njob_name = get_job()\ndef kv_get(): pass\nm.get_event()\nput_deploy_order(x.put_deploy_order)\n",
    after:
      "import ops as m\nfrom ops import put_rollout_order, get_job, kv_get\njob_name = get_job()\ndef kv_get(): pass\nm.hook_event()\nput_rollout_order(x.put_deploy_order)\n",
  },
  {
    name: "a helper whose script uses ops for something else stays",
    file: `${JOB}/_hooks/go.py`,
    before: "import maand\nops = X()\nops.get_job(maand.get_job())\n",
    looks: [1, 3],
  },
  {
    name: "a present helper whose name means something else too stays",
    file: `${JOB}/_hooks/go.py`,
    before: "import ops\ndef f(ops): return ops.get_job()\n",
  },
  {
    name: "a helper that is handed on stays",
    file: `${JOB}/_hooks/go.py`,
    before: "import maand\nrun(maand)\nmaand.get_job()\n",
    looks: [1, 2, 3],
  },
  {
    name: "a helper that may be missing stays",
    file: `${JOB}/_hooks/go.py`,
    before: "try:\n  import maand\nexcept ImportError:\n  maand = None\n",
    looks: [2, 4],
  },
  {
    name: "a helper whose name ends a line stays",
    file: `${JOB}/_hooks/go.py`,
    before: "import maand\nx = maand \\\n  .get_job()\n",
    looks: [1, 2],
  },
  {
    name: "strings and comments of Python that are no namespace stay",
    file: `${JOB}/_hooks/go.py`,
    before: `a = "maand"\nb = "see maand.example.com" # maand.x\nc = '''\nimport maand\n'''\nd = "it's maand/bucket"\ne = "ops"\n`,
    looks: [1, 2, 4, 6],
  },
  {
    name: "a string that does not end, an import behind a command, and a name with a prefix stay",
    file: `${JOB}/_hooks/go.py`,
    before: `"maand/bucket/x\nx = 1; from maand import y\nz = get_kv_value(r"maand", x)\n`,
    looks: [1, 2, 3],
  },
  {
    name: "functions that an f-string uses too keep their names, those that none uses do not",
    file: `${JOB}/_hooks/go.py`,
    before: `from maand import (get_job, kv_get,\n  kv_put)\nprint(f"{get_job()} {kv_get('a','b')}")\nkv_put("a", get_job())\n`,
    after: `from ops import (get_job, kv_get,\n  put_job_variable)\nprint(f"{get_job()} {kv_get('a','b')}")\nput_job_variable("a", get_job())\n`,
    looks: [1, 1, 3, 3, 4],
  },
  {
    name: "a helper that an f-string uses stays",
    file: `${JOB}/_hooks/go.py`,
    before: `import maand\nx = f"{maand.get_job()}"\nmaand.kv_put("a", x)\n`,
    looks: [1, 2, 3],
  },
  {
    name: "functions and modules that are looked up by a string stay",
    file: `${JOB}/_hooks/go.py`,
    before: `import maand\nimport maand as m\nm.kv_get("a", getattr(m, "kv_get"), sys.modules["maand"])\n`,
    looks: [1, 2, 3, 3],
  },
  {
    name: "the helper of a TypeScript hook; the local name may stay",
    file: `${JOB}/_hooks/go.ts`,
    before:
      'import * as maand from "./maand.ts";\nawait maand.putDeployOrder([]);\nawait maand.getKvValue("maand", "maand/job/x");\nconst a = "maand";\n',
    after:
      'import * as maand from "./ops.ts";\nawait maand.putRolloutOrder([]);\nawait maand.getKvValue("ops/bucket", "ops/job/x");\nconst a = "maand";\n',
    looks: [4],
  },
  {
    name: "a function of a TypeScript hook's own with the present name",
    file: `${JOB}/_hooks/go.ts`,
    before: 'import { putDeployOrder } from "./maand.ts";\nfunction putRolloutOrder() {}\n',
    after: 'import { putDeployOrder } from "./ops.ts";\nfunction putRolloutOrder() {}\n',
    looks: [1],
  },
  {
    name: "variables that have a present name, wherever they stand",
    file: `${JOB}/_hooks/go.py`,
    before: `u = f"http://{os.environ['JOB_COMMAND_API_HOST']}:{os.environ['JOB_COMMAND_API_PORT']}"\nr = os.environ["MAAND_BUCKET_ROOT"]\nz = os.environ["MAAND_HOME"]\n`,
    after: `u = f"http://{os.environ['HOOK_API_HOST']}:{os.environ['HOOK_API_PORT']}"\nr = os.environ["BUCKET_ROOT"]\nz = os.environ["MAAND_HOME"]\n`,
    looks: [3],
  },
  {
    name: "variables whose present name the file has already stay",
    file: `${JOB}/_hooks/go.sh`,
    before: 'JOB=nightly; TARGET=/var/backup; echo "$MAAND_JOB $MAAND_TARGET $MAAND_EVENT"\n',
    after: 'JOB=nightly; TARGET=/var/backup; echo "$MAAND_JOB $MAAND_TARGET $EVENT"\n',
    looks: [1, 1],
  },
  {
    name: "paths of other programs stay",
    file: `${JOB}/_hooks/go.sh`,
    before: `a /var/logs/maand/x /opt/other/rules/maand/ /etc/maand.conf ~/maand.conf\nb $X/maand.conf http://x/maand.conf -c=/x/maand.conf\nc $MAAND_BUCKET_ROOT/maand.conf conf/rules/maand/x ./logs/maand.log \${MAAND_BUCKET_ROOT}/logs/maand.log\n`,
    after: `a /var/logs/maand/x /opt/other/rules/maand/ /etc/maand.conf ~/maand.conf\nb $X/maand.conf http://x/maand.conf -c=/x/maand.conf\nc $BUCKET_ROOT/ops.conf conf/rules/ops/x ./logs/ops.log \${BUCKET_ROOT}/logs/ops.log\n`,
    looks: [1, 2],
  },
  {
    name: "folders and files of the earlier form, in code",
    file: `${JOB}/_hooks/go.sh`,
    before: "cat _modules/certs/ca.crt ../../maand.conf logs/maand.log my_modules/x\n",
    after: "cat _hooks/certs/ca.crt ../../ops.conf logs/ops.log my_modules/x\n",
  },
  {
    name: "commands where a shell begins one",
    file: `${JOB}/Makefile`,
    before:
      "x:\n\t@maand deploy && maand worker_facts\n\tmaand job_command check web\n\tmaand jobcommand web check; ops job_command web both\n\tmaand job_command check\n\tmaand cat job_ports\n\techo maand deploy\n\tmaand job_command a b\n\t/opt/maand build\n",
    after:
      "x:\n\t@ops deploy && ops worker facts\n\tops hooks check web\n\tops hooks check web; ops job_command web both\n\tops hooks check\n\tops cat ports\n\techo maand deploy\n\tmaand job_command a b\n\t/opt/maand build\n",
    looks: [4, 7, 8, 8, 9],
  },
  {
    name: "marks and metrics for Prometheus",
    file: `${JOB}/_prometheus/scrape.yaml`,
    before: "- job_name: maand:job\n  targets: ['maand:port/http', 'maand:portal']\n  x: maand_cert_not_after_seconds\n",
    after: "- job_name: ops:job\n  targets: ['ops:port/http', 'maand:portal']\n  x: ops_cert_not_after_seconds\n",
    looks: [2],
  },
  {
    name: "the rules of Prometheus",
    file: `${JOB}/prometheus.yml`,
    before: "rule_files: [rules/maand/certs.yaml]\nx: maand:job\n",
    after: "rule_files: [rules/ops/certs.yaml]\nx: maand:job\n",
    looks: [2],
  },
  {
    name: "folders elsewhere, and names in files that the server does not run, stay and are named",
    file: `${JOB}/_hooks/go.py`,
    before: `a = open("./_modules/a"), open("jobs/web/_modules/b"), os.path.join(x, "_modules")\nb = "/srv/_modules/c", f"{x}/_modules/"\n`,
    after: `a = open("./_hooks/a"), open("jobs/web/_hooks/b"), os.path.join(x, "_hooks")\nb = "/srv/_modules/c", f"{x}/_modules/"\n`,
    looks: [2],
  },
  {
    name: "a job's own program is no hook",
    file: `${JOB}/bin.py`,
    before: `import maand\nx = "maand/job/web"\ny = os.environ["JOB_COMMAND_API_HOST"], "_modules/x"\n`,
    looks: [1, 2, 3, 3],
  },
  {
    name: "the variables of run_command and of the server",
    file: "workspace/command.sh",
    before: "echo $MAAND_BUCKET_ID $MAAND_SERVE_TOKEN\n",
    after: "echo $BUCKET_ID $OPS_SERVE_TOKEN\n",
  },
  { name: "text for people is named only", file: `${JOB}/README.md`, before: "maand.conf\nx\n", looks: [1] },
  { name: "settings keep values that nobody can judge", file: "maand.conf", before: 'ssh_user = "maand"\n', looks: [1] },
];

for (const { name, file, before, after = before, looks = [] } of CASES)
  test(`the earlier form: ${name}`, () => {
    const found = migratedText(file, before, HOOKS);
    assert.equal(found.text, after);
    assert.deepEqual(
      found.looks.map(({ line }) => line),
      looks,
    );
    assert.deepEqual(migratedText(file, after, HOOKS).text, after, "a second time changes nothing");
  });

test("every variable that each script gets is known under its earlier names", () => {
  const facts = {
    allocation: { id: "", worker: "", job: "", disabled: false, newVersion: "" },
    ...{ allocationIndex: 0, currentVersion: "", event: "", hook: "", phase: "", api: { host: "", port: 0 }, bucketRoot: "" },
    batch: { workers: [], index: 0, count: 0, order: { workers: [], source: "catalog" as const } },
    ...{ sshConfig: undefined, workersFile: "", variables: {} },
  };
  for (const name of Object.keys(scriptEnvironment({}, facts as never)).filter((one) => !one.startsWith("OPS_")))
    assert.equal(
      migratedText(`${JOB}/_hooks/x.py`, `JOB_COMMAND_${name}`, HOOKS).text.replace("HOOK_", ""),
      name.replace("HOOK_", ""),
    );
});

const migrated = (file: string, text: string) => migratedText(file, text, HOOKS).text;

test("every function of the earlier helper has its present name", () => {
  const names = `put_deploy_order put_rollout_order get_deploy_order get_rollout_order get_allocation_id allocation_id
    get_allocation_ip allocation_ip get_allocation_index allocation_index get_job job_name get_event hook_event get_command hook_name
    kv_get get_store_value kv_put put_job_variable kv_put_secret put_job_secret get_demands list_hook_demands`.split(/\s+/);
  for (let index = 0; index < names.length; index += 2) {
    const [old, present] = [names[index], names[index + 1]];
    assert.equal(migrated(`${JOB}/_hooks/a.py`, `import maand\nmaand.${old}()\n`), `import ops\nops.${present}()\n`);
    assert.equal(
      migrated(`${JOB}/_hooks/a.py`, `from maand import ${old}\n${old}()\n`),
      `from ops import ${present}\n${present}()\n`,
    );
  }
  for (const way of [
    'from "./maand.ts"',
    "from 'maand'",
    'require("./maand.js")',
    'import("maand.mjs")',
    "import ( './maand.cts' )",
  ])
    for (const [old, present] of [
      ["putDeployOrder", "putRolloutOrder"],
      ["getDeployOrder", "getRolloutOrder"],
    ])
      for (const file of ["a.ts", "a.js", "a.mjs", "a.cts"])
        assert.equal(
          migrated(`${JOB}/_hooks/${file}`, `const x = ${way}\nx.${old}({${old}: 1},(${old}))\n`),
          `const x = ${way.replace("maand", "ops")}\nx.${present}({${present}: 1},(${present}))\n`,
        );
  const none = 'import { x } from "./other.ts";\nputDeployOrder([]);\n';
  assert.equal(migrated(`${JOB}/_hooks/a.ts`, none), none, "without the helper it is a function of the script's own");
  for (const call of ["getStoreValue", "getKvValue", "listJobKeys"])
    for (const quote of ['"', "'", "`"])
      assert.equal(migrated(`${JOB}/_hooks/a.ts`, `${call}( ${quote}maand${quote})`), `${call}( ${quote}ops/bucket${quote})`);
  for (const call of ["get_store_value", "get_kv_value", "kv_get", "list_job_keys"])
    for (const quote of ['"', "'"])
      assert.match(migrated(`${JOB}/_hooks/a.py`, `x = ${call}(${quote}ops${quote})`), /\(["']ops\/bucket["']\)$/);
});

test("namespaces are renamed where all of a string is one, in scripts and templates", () => {
  for (const name of ["bucket", "worker", "worker/a", "job/web", "prometheus"]) {
    for (const file of ["_hooks/a.py", "_hooks/a.ts"])
      assert.equal(migrated(`${JOB}/${file}`, `x("maand/${name}")`), `x("ops/${name}")`);
    assert.equal(migrated(`${JOB}/a.tpl`, `{{ get "maand/${name}" "k" }}`), `{{ get "ops/${name}" "k" }}`);
  }
  for (const name of ["buckets", "workerx", "jobs/web", "x"]) {
    for (const file of ["_hooks/a.py", "_hooks/a.ts"])
      assert.equal(migrated(`${JOB}/${file}`, `x("maand/${name}")`), `x("maand/${name}")`);
    assert.equal(migrated(`${JOB}/a.tpl`, `{{ get "maand/${name}" "k" }}`), `{{ get "maand/${name}" "k" }}`);
  }
  for (const call of ["get", "getOptional", "keys"]) {
    assert.equal(
      migrated(`${JOB}/a.tpl`, `{{ ${call} "maand" }}{{ ${call} \`ops\` }}`),
      `{{ ${call} "ops/bucket" }}{{ ${call} \`ops/bucket\` }}`,
    );
    assert.equal(migrated(`${JOB}/a.txt`, `{{ ${call} "maand" }}`), `{{ ${call} "maand" }}`, "only in a template");
  }
  assert.equal(
    migrated(`${JOB}/a.tpl`, '{{ x "maand" }} {{ "a }} b" | get "maand" }}'),
    '{{ x "maand" }} {{ "a }} b" | get "ops/bucket" }}',
  );
});

test("a command of the earlier program is renamed where a shell begins one, in the files of a shell", () => {
  const begins = ["", "\t", "  @", "@-"]
    .slice(0, 3)
    .concat(["a; ", "a && ", "a | ", "(", "`", "then ", "do ", "else ", "sudo ", "exec ", "time "]);
  for (const start of begins) assert.equal(migrated(`${JOB}/x.sh`, `${start}maand build\n`), `${start}ops build\n`, start);
  for (const start of ["echo ", "x=", "/opt/", "$", "my-"])
    assert.equal(migrated(`${JOB}/x.sh`, `${start}maand build\n`), `${start}maand build\n`, start);
  const same = ["init", "build", "deploy", "health_check", "job", "run_command", "gc", "cat", "info", "logs", "hooks"];
  for (const command of same) {
    assert.equal(migrated(`${JOB}/x.sh`, `maand ${command} a\n`), `ops ${command} a\n`);
    assert.equal(migrated(`${JOB}/x.sh`, `maand ${command}x a\n`), `maand ${command}x a\n`);
  }
  const text = "maand build\n";
  for (const file of ["Makefile", "Makefile.inc", "conf/Makefile.tpl", "a.mk", "a.sh", "a.bash", "a.sh.tpl"])
    assert.equal(migrated(`${JOB}/${file}`, text), "ops build\n", file);
  for (const file of ["xMakefile", "a.shx", "a.txt", "sh"]) assert.equal(migrated(`${JOB}/${file}`, text), text, file);
  for (const shell of ["/bin/sh", "/usr/bin/env bash", "/bin/dash", "/bin/ksh -e", "/bin/zsh"])
    assert.equal(migrated(`${JOB}/run`, `#!${shell}\n${text}`), `#!${shell}\nops build\n`, shell);
  for (const other of ["/usr/bin/fish", "/usr/bin/python3"])
    assert.equal(migrated(`${JOB}/run`, `#!${other}\n${text}`), `#!${other}\n${text}`);
});

test("fields, marks and settings are renamed where they mean one thing, and nowhere else", () => {
  const fields = {
    Commands: "hooks",
    update_parallel_count: "max_concurrent_upgrades",
    DEPLOY_parallel_count: "max_concurrent_starts",
  };
  for (const [old, present] of Object.entries(fields))
    for (const file of [`${JOB}/manifest.json`, "templates/t/manifest.json"])
      assert.equal(migrated(file, `{"${old}": {}}`), `{"${present}": {}}`);
  for (const file of ["manifest.json", "workspace/jobs/manifest.json", `${JOB}/a/manifest.json`, `${JOB}/manifest.json.tpl`])
    assert.equal(migrated(file, '{"commands": {}}'), '{"commands": {}}', file);
  assert.equal(migrated(`${JOB}/manifest.json`, '{"\\u0063ommands": {}}'), '{"hooks": {}}', "however it is written");
  const demand = (name: string, key: string) => `{"${name}": {"a": {"DEMANDS": {"${key}": "b"}, "other": {"command": "c"}}}}`;
  for (const name of ["hooks", "Hooks"])
    assert.equal(migrated(`${JOB}/manifest.json`, demand(name, "Command")), demand(name, "hook"));
  const { looks } = migratedText(`${JOB}/manifest.json`, '{"hooks": {"a": {"demands": {"hook": "a",\n"command": "b"}}}}', HOOKS);
  assert.deepEqual(looks, [{ line: 2, message: "command and hook are both there: keep hook" }]);
  for (const list of ["[]", "5", "null"]) assert.equal(migrated(`${JOB}/manifest.json`, list), list);
  const words =
    "MAAND_SERVE_ROOT MAAND_SERVE_TOKEN MAAND_SERVE_TOKENS maand.conf x-maand.conf maand.config rules/maand/ logs/maand.log logs/maands";
  const renamed =
    "OPS_SERVE_ROOT OPS_SERVE_TOKEN MAAND_SERVE_TOKENS ops.conf x-maand.conf maand.config rules/ops/ logs/ops.log logs/maands";
  assert.equal(migrated(`${JOB}/a.conf`, words), renamed);
  for (const file of ["a.md", "a.txt", "a.rst", "a.htm", "a.html"]) assert.equal(migrated(`${JOB}/${file}`, words), words, file);
  const marks = "maand:port/x maand:job maand_cert_a xmaand:job maand:jobs amaand_cert_b";
  assert.equal(migrated(`${JOB}/_prometheus/a.yaml`, marks), "ops:port/x ops:job ops_cert_a xmaand:job maand:jobs amaand_cert_b");
  assert.equal(migrated(`${JOB}/prometheus.yml`, marks), marks);
});

test("a name that nothing here can judge is told with its line, and why where that is known", () => {
  const told = (file: string, text: string) =>
    migratedText(file, text, HOOKS).looks.map(({ line, message }) => `${line} ${message}`);
  const unknown = (line: number, name: string) => `${line} "${name}" stays: what this earlier name means here is not known`;
  assert.deepEqual(told(`${JOB}/a`, "maandx\n_modules job_command JobCommands job_ports JOB_COMMAND_X x_modules\n"), [
    unknown(1, "maandx"),
    ...["_modules", "job_command", "JobCommands", "job_ports", "JOB_COMMAND_X"].map((name) => unknown(2, name)),
  ]);
  assert.deepEqual(told(`${JOB}/_hooks/a.py`, 'import maand\nops = maand.kv_get("x", y)\n'), [
    ...[1, 2].map((line) => `${line} "maand" stays: the script uses "maand" or "ops" for something else too`),
  ]);
  assert.deepEqual(told(`${JOB}/_hooks/a.py`, "import maand\nx = f'{maand.get_job()}'\n"), [
    ...[1, 2].map((line) => `${line} "maand" stays: a string of the script has this name too`),
  ]);
  assert.deepEqual(told(`${JOB}/_hooks/a.sh`, "JOB=1 $MAAND_JOB\n"), [
    '1 "MAAND_JOB" stays: the file has the name "JOB" already',
  ]);
  assert.deepEqual(told(`${JOB}/_hooks/a.ts`, 'import { putDeployOrder } from "./ops.ts";\nfunction putRolloutOrder() {}\n'), [
    '1 "putDeployOrder" stays: the script has the name "putRolloutOrder" already',
  ]);
});

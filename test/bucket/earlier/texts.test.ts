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

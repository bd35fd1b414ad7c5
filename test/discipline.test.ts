// The rules for the tests themselves: nothing outside their own folders is touched, random choices come from one seed,
// and waits are longer where the machine is busy. This test reads the text of all others.
import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { FAST, isBelow, isFast } from "./helpers/fast.ts";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const THIS = "test/discipline.test.ts";

interface Source {
  file: string;
  text: string;
}

/** A rule, and the files that may break it, each with the reason. */
interface Rule {
  name: string;
  found: RegExp;
  advice: string;
  except: Record<string, string>;
}

/** The beginning of a quoted text that names a place which other programs use too. */
const SHARED = String.raw`["'\x60](?:\/tmp|\/var|\/home|\/root|\/run|\/dev\/shm|~\/)(?=[\/"'\x60\s])`;
const CONNECTIONS = "connections have their folders there, and what dead ones leave is removed";

const RULES: Rule[] = [
  {
    name: "shared place",
    found: new RegExp(SHARED),
    advice: "use temporaryFolder(); where nothing is opened, a name below /srv",
    except: {
      "scripts/test.ts": "makes a folder of its own there",
      "scripts/private-sshd.ts": "sshd does not start as root without /run/sshd",
      "scripts/setup.js": "looks whether there are lists of packages",
      "test/cli/server/install.test.ts": "has a file system of its own there, or opens nothing",
      "test/transport/ssh/ssh.test.ts": CONNECTIONS,
      "test/slow/demo.test.ts": "asks for the end of a name",
    },
  },
  {
    name: "folder for temporary files",
    found: /\btmpdir\(|\bmkdtemp(?:Sync)?\((?!path\.join\(folder)/,
    advice: "use temporaryFolder() of test/helpers/temporary.ts",
    except: {
      "test/helpers/temporary.ts": "makes all of them",
      "test/operation/hooks/apart.test.ts": "sessions have their folders there, and what dead ones leave is removed",
      "test/helpers/mutant-run.ts": "keeps what a long proof found between its runs",
      "test/helpers/mutant-tests.ts": "makes the one of a test file that a long proof runs, and removes it",
      "scripts/test.ts": "makes the one that all the others are in, and removes it",
      "scripts/demo.ts": "is no test",
      "scripts/prove.ts": "is no test, and removes it",
      "scripts/release/build.ts": "is no test; the folder becomes the release",
      "scripts/release/main.ts": "is no test, and removes it",
      "scripts/picture.ts": "is no test",
      "scripts/screenshots.ts": "is no test",
    },
  },
  {
    name: "home",
    found: /\bhomedir\(|\.homedir\b|\bprocess\.env\.HOME\b|\benv\.HOME\b/,
    advice: "tests have no use for the home of whoever runs them",
    except: {
      "test/architecture.test.ts": "is a text that is checked",
      "test/operation/control/run-command.test.ts": "compares where a command begins",
      "test/transport/base/local.test.ts": "compares where a command begins",
      "test/transport/ssh/ssh.test.ts": "compares where a command begins",
      "test/transport/files/compare.test.ts": "has a home of its own",
    },
  },
  {
    name: "link to the outside",
    found:
      /\b(?:symlink|symlinkSync|link|linkSync)\(\s*["'`]\/(?!(?:etc\/(?:passwd|hostname)|dev\/(?:null|zero)|usr\/bin\/python3|nowhere)["'`])/,
    advice: "link to a folder of the test, or to what is everywhere and must not be opened, like /etc/passwd",
    except: {},
  },
  {
    name: "browser",
    found: /\bchromium\.launch/,
    advice: "use launchChromium() of test/helpers/browser.ts, which gives it a home",
    except: { "test/helpers/browser.ts": "is that helper" },
  },
  {
    name: "random choice",
    found: /\bMath\.random\(|\brandomInt\(/,
    advice: "use seeded() of test/helpers/random.ts",
    except: { "scripts/example.ts": "two processes must not choose the same ports" },
  },
  {
    name: "seed",
    found: /\benv\.OPS_TEST_SEED\b/,
    advice: "use SEED of test/helpers/random.ts",
    except: { "test/helpers/random.ts": "reads it", "scripts/test.ts": "tells it" },
  },
  {
    name: "fixed wait",
    found: /(?:AbortSignal\.timeout|setDefaultTimeout)\(\s*[\d.]|(?:^\s*|\{ ?)timeout: ?[1-9]/,
    advice: "use until() or patience()",
    except: {},
  },
  {
    name: "private static method",
    found: /\bstatic (?:async )?\*?#\w+\(/,
    advice: "V8 loses its class in code that comes from the compile cache: make it `private static`",
    except: { "test/architecture.test.ts": "is a text that is checked" },
  },
];

const SOURCES: Source[] = globSync(["test/**/*.ts", "scripts/**/*.{ts,js}"], { cwd: ROOT })
  .filter((file) => file !== THIS)
  .map((file) => ({ file, text: readFileSync(`${ROOT}${file}`, "utf8") }));

/** Every line that breaks a rule, and every exception that is not needed any more. */
function problems(rules: readonly Rule[], sources: readonly Source[]): string[] {
  return rules.flatMap(({ name, found, advice, except }) => {
    const lines = sources.flatMap(({ file, text }) =>
      text
        .split("\n")
        .flatMap((line, index) => (found.test(line.replace(/^\s*(?:\/\/|\*|\/\*\*).*/, "")) ? [{ file, at: index + 1 }] : [])),
    );
    const broken = lines.filter(({ file }) => except[file] === undefined);
    const used = new Set(lines.map(({ file }) => file));
    return [
      ...broken.map(({ file, at }) => `${file}:${at}: ${name}: ${advice}`),
      ...Object.keys(except)
        .filter((file) => !used.has(file))
        .map((file) => `${file}: ${name}: take it off the exceptions`),
    ];
  });
}

test("the tests touch nothing outside their own folders, choose from the seed and wait with patience", () => {
  assert.deepEqual(problems(RULES, SOURCES), []);
});

const UNBOUND = RULES.map((rule) => ({ ...rule, except: {} }));

for (const [what, rule, text] of [
  ["a link to /tmp", "shared place", 'symlinkSync("/tmp", path.join(dir, "folder"));'],
  ["a file in /tmp", "shared place", "writeFileSync(`/tmp/ops-$" + "{name}`, text);"],
  ["a file in /var", "shared place", "mkdirSync('/var/lib/x');"],
  ["a folder beside the helper's", "folder for temporary files", 'mkdtempSync(path.join(base, "x-"));'],
  ["a home", "home", 'path.join(homedir(), ".cache")'],
  ["a link to the root", "link to the outside", 'symlinkSync("/", file);'],
  ["a browser without a home", "browser", "await chromium.launch();"],
  ["a choice without a seed", "random choice", "const port = Math.random() * 9;"],
  ["a seed of its own", "seed", "const first = Number(process.env.OPS_TEST_SEED);"],
  ["a fixed wait", "fixed wait", 'once(child, "exit", { signal: AbortSignal.timeout(10_000) })'],
  ["a private static method", "private static method", "class A { static async #each() {} }"],
  ["a fixed limit of a test", "fixed wait", "  timeout: 10_000,"],
] as const)
  test(`the check finds ${what}`, () => {
    const { advice } = RULES.find(({ name }) => name === rule) as Rule;
    const found = problems(UNBOUND, [{ file: "test/a.test.ts", text: `\n${text}` }]);
    assert.ok(found.includes(`test/a.test.ts:2: ${rule}: ${advice}`), found.join("\n"));
  });

test("the check leaves comments, /etc/passwd as a target and names below a folder alone", () => {
  const text = '// "/tmp"\nsymlinkSync("/etc/passwd", file);\nread(`$' + '{dir}/tmp/x`);\nconst a = "tmp/x";';
  assert.deepEqual(problems(UNBOUND, [{ file: "test/a.test.ts", text }]), []);
});

test("every name in test/fast.json is that of a test or of a folder with some, and the pure tests are in it", () => {
  const files = globSync("test/**/*.test.ts", { cwd: ROOT });
  for (const name of FAST)
    assert.ok(
      files.some((file) => isBelow(file, name.replace(/^!/, ""))),
      `${name} is not there`,
    );
  for (const name of [
    ...["auth/totp", "bucket/workspace/ssh-key", "codec/crypto/totp", "hook/environment", "hook/semaphores"],
    ...["operation/base/outcome", "transport/ssh/limits", "transport/ssh/trouble"],
  ]) {
    assert.ok(files.includes(`test/${name}.test.ts`), `${name} is not there`);
    assert.ok(isFast(`test/${name}.test.ts`), name);
  }
  assert.ok(!isFast("test/slow/kill.test.ts"));
});

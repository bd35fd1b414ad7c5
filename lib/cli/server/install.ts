import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { chmod, chown, lstat, readdir, rm } from "node:fs/promises";
import path from "node:path";
import { Failure } from "../../core/errors.ts";
import { createExclusive, makePrivateFolder, PRIVATE_FOLDER, readBounded, unlessMissing, writeAtomic } from "../../core/files.ts";
import { selfArguments } from "../../core/self.ts";
import { type Argv, type CommandOutcome, Launcher } from "../../core/spawn.ts";
import { serverConfig } from "../../server/config.ts";
import { EXIT, type Parsed, wantsJson, withoutServerVariables } from "../base/flags.ts";
import { printAnswer, toStdout } from "../base/terminal.ts";
import { SERVICE, type ServiceSettings, serviceUnit, settingsOfUnit, settledSettings, usersOf } from "./unit.ts";

const TOKEN_BYTES = 32;
const READABLE_FILE = 0o644;
const UNIT_BYTES = 64 * 1024;
const COMMAND_LIMIT_MS = 120_000;
/** The root is closed to the user of hooks. */
const NO_HOME = "/nonexistent";
/** Where systemd runs, it has this folder. */
const BOOTED = "/run/systemd/system";

/** One step of an installation: what it is about, and the work, which answers what was done. */
interface Step {
  about: string;
  work(): Promise<"made" | "kept" | "checked">;
}

/**
 * `ops server install`: makes the user, the token, the root and the unit of a server, each where it is missing, and
 * starts nothing without `--now`. A second call writes the unit anew; one without settings keeps those of the unit.
 */
export async function installCommand(input: Parsed): Promise<number> {
  const found = await installedUnit();
  const given = settledSettings(input.values);
  const settings = Object.keys(given).length > 0 ? given : (found?.settings ?? {});
  const program = selfArguments();
  const unit = serviceUnit(settings, program);
  const steps = stepsOf(settings, program, unit === found?.text ? undefined : unit);
  if (input.switches.has("print")) {
    toStdout(`${steps.map(({ about }, index) => `# ${index + 1}. ${about}\n`).join("")}\n${unit}`);
    return EXIT.done;
  }
  requireRoot("ops server install");
  const { name } = SERVICE;
  const isNow = input.switches.has("now");
  if (isNow && !existsSync(BOOTED)) throw new Failure("failed", `Cannot start ${name}: systemd does not run here`);
  const done: { step: string; outcome: string }[] = [];
  for (const { about, work } of steps) {
    done.push({ step: about, outcome: await work() });
    if (!wantsJson(input)) toStdout(`${done.at(-1)?.outcome.padEnd(7)}  ${about}\n`);
  }
  const orders: Argv[] = [
    ["systemctl", "daemon-reload"],
    ["systemctl", "enable", name],
    ["systemctl", "restart", name],
  ];
  if (isNow) for (const order of orders) await must(order);
  const token = settings["token-file"] ?? SERVICE.token;
  const next = isNow
    ? `started  ${name}; its log: journalctl -u ops`
    : `start it: ${orders.map((one) => one.join(" ")).join(" && ")}`;
  return printAnswer(
    input,
    { steps: done, started: isNow, token_file: token },
    `${next}\nsign in with the token: cat ${token}\n`,
  );
}

/** `ops server uninstall`: stops the service and removes its unit; data, token and user stay, and it says where. */
export async function uninstallCommand(input: Parsed): Promise<number> {
  const found = await installedUnit();
  if (!found) throw new Failure("failed", `Cannot remove the service: ${SERVICE.unit} does not exist`);
  requireRoot("ops server uninstall");
  const isRunning = existsSync(BOOTED);
  await must(["systemctl", "disable", ...(isRunning ? ["--now"] : []), SERVICE.name]);
  await rm(SERVICE.unit);
  if (isRunning) await must(["systemctl", "daemon-reload"]);
  const { root = SERVICE.root, "token-file": token = SERVICE.token } = found.settings;
  const { made: user } = usersOf(found.settings);
  return printAnswer(
    input,
    { removed: SERVICE.unit, root, token_file: token, user },
    `removed  ${SERVICE.unit}\nkept     ${root}, the buckets\nkept     ${token}, the API token\nkept     the user ${user}\n`,
  );
}

/** The unit that is there; throws `failed` for one that this program has not written. */
export async function installedUnit(): Promise<{ text: string; settings: ServiceSettings } | undefined> {
  const text = (await readBounded(SERVICE.unit, UNIT_BYTES))?.toString();
  if (text === undefined) return undefined;
  const settings = settingsOfUnit(text);
  if (settings) return { text, settings };
  throw new Failure("failed", `Cannot use ${SERVICE.unit}: \`ops server install\` did not write it; move it away`);
}

/** The steps before a start; `unit` is undefined where the right one is there. */
function stepsOf(settings: ServiceSettings, program: Argv, unit: string | undefined): Step[] {
  const { user: _, root = SERVICE.root, "token-file": token = SERVICE.token, ...flags } = settings;
  const { server: user, made } = usersOf(settings);
  const readable = [settings["tls-cert"], settings["tls-key"], settings["heartbeat-url-file"]].filter(
    (file) => file !== undefined,
  );
  return [
    { about: `the system user ${made}`, work: () => makeUser(made, made === user ? SERVICE.root : NO_HOME) },
    { about: `${token} (0600), the API token of ${TOKEN_BYTES * 8} bits`, work: () => makeToken(token) },
    {
      about: "the settings: address, certificate, TOTP secret",
      async work() {
        await serverConfig({ ...flags, root, "token-file": token }, {});
        return "checked";
      },
    },
    { about: `${root} (0700), the buckets; it belongs to ${user}`, work: () => makeRoot(root, user) },
    {
      about: `${user} can use ${[program[0], program[1], ...readable].join(", ")}`,
      work: () => checkRights(user, program, readable),
    },
    { about: `${SERVICE.unit} (0644)`, work: () => writeUnit(unit) },
  ];
}

async function makeUser(user: string, folder: string): ReturnType<Step["work"]> {
  if ((await run(["id", "-u", user])).exitCode === 0) return "kept";
  const home = ["--home-dir", folder, "--no-create-home", "--shell", "/usr/sbin/nologin"];
  await must(["useradd", "--system", "--user-group", ...home, user]);
  return "made";
}

async function makeToken(file: string): ReturnType<Step["work"]> {
  await makePrivateFolder(path.dirname(file));
  return (await createExclusive(file, `${randomBytes(TOKEN_BYTES).toString("base64url")}\n`)) ? "made" : "kept";
}

async function makeRoot(root: string, user: string): ReturnType<Step["work"]> {
  const [uid, gid] = await Promise.all(["-u", "-g"].map(async (flag) => Number(await must(["id", flag, user]))));
  const found = await unlessMissing(lstat(root));
  if (found?.isDirectory() && found.uid === uid) {
    if ((found.mode & 0o777) === PRIVATE_FOLDER) return "kept";
    await chmod(root, PRIVATE_FOLDER);
    return "made";
  }
  if ((await unlessMissing(readdir(root)))?.length)
    throw new Failure(
      "failed",
      `Cannot use the root ${root}: its buckets do not belong to ${user}; run: chown -R ${user}: ${root}`,
    );
  await makePrivateFolder(root);
  await chmod(root, PRIVATE_FOLDER);
  await chown(root, uid as number, gid as number);
  return "made";
}

/** Tries the program and the files as the user of the service. */
async function checkRights(user: string, program: Argv, files: readonly string[]): ReturnType<Step["work"]> {
  const asUser: Argv = ["runuser", "-u", user, "--"];
  const { exitCode } = await run([...asUser, ...program, "version"]);
  const advice = "install ops where every user can read it, such as /opt/ops or with `npm install -g`";
  if (exitCode !== 0) throw new Failure("failed", `Cannot run ${program.join(" ")} as ${user}: ${advice}`);
  for (const file of files)
    if ((await run([...asUser, "test", "-r", file])).exitCode !== 0)
      throw new Failure("failed", `${user} cannot read ${file}: chgrp ${user} ${file} && chmod g+r ${file}, and its folders too`);
  return "checked";
}

async function writeUnit(unit: string | undefined): ReturnType<Step["work"]> {
  if (unit === undefined) return "kept";
  await writeAtomic(SERVICE.unit, unit, READABLE_FILE);
  return "made";
}

async function must(argv: Argv): Promise<string> {
  const { exitCode, stdout, stderr } = await run(argv);
  if (exitCode === 0) return stdout.trim();
  throw new Failure("failed", `${argv.join(" ")}: ${stderr.trim() || `it ended with ${exitCode}`}`);
}

function run(argv: Argv): Promise<CommandOutcome> {
  // From "/": the user of the service may not enter the folder of the caller.
  return new Launcher(withoutServerVariables(process.env)).run(argv, { cwd: "/", timeoutMs: COMMAND_LIMIT_MS });
}

function requireRoot(command: string): void {
  if (process.getuid?.() === 0) return;
  throw new Failure("failed", `\`${command}\` changes the system: run it as root`);
}

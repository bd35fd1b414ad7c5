// Finds out whether the tools are here that the demo or the tests need, before anything else runs:
//   node scripts/setup.js demo|demo-ssh|test
// Where this process may (root on Debian, unless OPS_SETUP=no) it lists what is missing and installs it; elsewhere it
// names each missing tool with the command that installs it and ends with exit code 1. Plain JavaScript: it has to run on
// any Node from 20 on.
import { spawnSync } from "node:child_process";
import { accessSync, constants, existsSync, readdirSync } from "node:fs";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../", import.meta.url));

/** Which Debian package brings which tool. */
const PACKAGES = {
  sh: "dash",
  make: "make",
  tar: "tar",
  find: "findutils",
  sha256sum: "coreutils",
  setsid: "util-linux",
  python3: "python3",
  openssl: "openssl",
  busybox: "busybox",
  git: "git",
  patch: "patch",
  chromium: "chromium",
  ssh: "openssh-client",
  "ssh-keygen": "openssh-client",
  "ssh-keyscan": "openssh-client",
  "/usr/sbin/sshd": "openssh-server",
  tcsh: "tcsh",
  "redis-server": "redis-server",
  oathtool: "oathtool",
  zbarimg: "zbar-tools",
  bsdtar: "libarchive-tools",
  "systemd-analyze": "systemd",
  "/usr/sbin/nginx": "nginx",
  zsh: "zsh",
  fish: "fish",
  mandoc: "mandoc",
  curl: "curl",
  promtool: "prometheus",
  prometheus: "prometheus",
};
const DEMO = ["sh", "make", "tar", "find", "sha256sum", "setsid"];
// sshd starts itself anew for every connection, and for that wants its full path.
const SSH = ["ssh", "ssh-keygen", "ssh-keyscan", "/usr/sbin/sshd"];
const TOOLS = {
  demo: DEMO,
  "demo-ssh": [...DEMO, ...SSH],
  test: [
    ...DEMO,
    ...SSH,
    "python3",
    "openssl",
    "busybox",
    "git",
    "patch",
    "chromium",
    "tcsh",
    "redis-server",
    "oathtool",
    "zbarimg",
    "bsdtar",
    "systemd-analyze",
    "/usr/sbin/nginx",
    "zsh",
    "fish",
    "mandoc",
    "curl",
    "promtool",
    "prometheus",
  ],
};
const COMMANDS = { demo: "npm run demo", "demo-ssh": "npm run demo -- --ssh", test: "npm test" };

/** Packages that bring a service. We run their programs ourselves; the service stays off. */
const SERVICES = { "openssh-server": "ssh", "redis-server": "redis-server", nginx: "nginx", prometheus: "prometheus" };

/** What `npm ci` brings, where this Node is too old a newer one too: without it nothing starts. */
const NODE = Number.parseInt(process.versions.node, 10) < 24 ? [".bin/node"] : [];
const MODULES = { demo: NODE, "demo-ssh": NODE, test: [...NODE, "typescript", "@biomejs/biome", "playwright-core"] };

const INSTALL_LIMIT_MS = 15 * 60_000;

function main(mode) {
  if (TOOLS[mode] === undefined) return fail(["usage: node scripts/setup.js demo|demo-ssh|test"], 2);
  const modules = MODULES[mode].filter((name) => !existsSync(path.join(ROOT, "node_modules", name)));
  if (modules.length > 0)
    return fail([`ops: node_modules/${modules[0]} is missing; run: npm ci --include=dev --include=optional`], 1);
  const missing = missingTools(mode);
  if (missing.length > 0 && mayInstall()) install(missing);
  const still = missing.length > 0 ? missingTools(mode) : [];
  if (still.length > 0) fail(advice(mode, still), 1);
}

function missingTools(mode) {
  return TOOLS[mode].filter((tool) => find(tool) === undefined);
}

function find(tool) {
  const folders = (process.env.PATH ?? "").split(path.delimiter).filter((folder) => folder !== "");
  return folders.map((folder) => path.resolve(folder, tool)).find(isExecutable);
}

function isExecutable(file) {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function mayInstall() {
  return (
    process.env.OPS_SETUP !== "no" &&
    process.getuid?.() === 0 &&
    existsSync("/etc/debian_version") &&
    find("apt-get") !== undefined
  );
}

function install(tools) {
  const packages = packagesOf(tools);
  const services = packages.map((name) => SERVICES[name]).filter((service) => service !== undefined);
  const lines = packages.map((name) => `  ${name}, for ${tools.filter((tool) => PACKAGES[tool] === name).join(", ")}`);
  process.stdout.write(`ops: installs with apt-get, unless OPS_SETUP=no is set:\n${lines.join("\n")}\n`);
  // A fresh machine has no package lists, an old one has lists that name what is gone.
  const isInstalled = hasPackageLists() && aptGet("install", ...packages);
  if (!isInstalled) {
    aptGet("update");
    aptGet("install", ...packages);
  }
  for (const service of services) {
    process.stdout.write(`ops: the service ${service} stays off; it is not needed\n`);
    spawnSync("update-rc.d", [service, "disable"], { stdio: "ignore", timeout: INSTALL_LIMIT_MS });
  }
}

function hasPackageLists() {
  const folder = "/var/lib/apt/lists";
  return existsSync(folder) && readdirSync(folder).some((name) => name.includes("_Packages"));
}

function aptGet(command, ...packages) {
  const flags = ["-qq", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120"];
  process.stdout.write(`ops: apt-get ${[command, ...packages].join(" ")}\n`);
  const { status } = spawnSync("apt-get", [command, ...flags, ...packages], {
    // SYSTEMD_OFFLINE: what is installed here starts no service.
    env: { ...process.env, DEBIAN_FRONTEND: "noninteractive", SYSTEMD_OFFLINE: "1" },
    stdio: ["ignore", "ignore", "inherit"],
    timeout: INSTALL_LIMIT_MS,
  });
  return status === 0;
}

function packagesOf(tools) {
  return [...new Set(tools.map((tool) => PACKAGES[tool]))];
}

function advice(mode, tools) {
  const width = Math.max(...tools.map((tool) => tool.length));
  return [
    `ops: ${COMMANDS[mode]} needs tools that are not on this machine:`,
    ...tools.map((tool) => `  ${tool.padEnd(width)}  apt-get install -y ${PACKAGES[tool]}`),
    "Install them as root, here all at once, and try again:",
    `  apt-get update && apt-get install -y ${packagesOf(tools).join(" ")}`,
  ];
}

function fail(lines, code) {
  process.stderr.write(`${lines.join("\n")}\n`);
  process.exitCode = code;
}

main(process.argv[2]);

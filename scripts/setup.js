// Finds out whether the tools are here that the demo or the tests need, before anything else runs:
//   node scripts/setup.js demo|test
// Where this process may (root on Debian) it installs what is missing; elsewhere it names each missing tool with the
// command that installs it and ends with exit code 1. Plain JavaScript: it has to run on any Node from 20 on.
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
  chromium: "chromium",
};
const DEMO = ["sh", "make", "tar", "find", "sha256sum", "setsid"];
const TOOLS = { demo: DEMO, test: [...DEMO, "python3", "openssl", "busybox", "git", "chromium"] };

/** What `npm ci` brings: without it nothing starts. */
const MODULES = {
  demo: ["node/bin/node"],
  test: ["node/bin/node", "typescript", "@biomejs/biome", "playwright-core"],
};

const INSTALL_LIMIT_MS = 15 * 60_000;

function main(mode) {
  if (TOOLS[mode] === undefined) return fail(["usage: node scripts/setup.js demo|test"], 2);
  const modules = MODULES[mode].filter((name) => !existsSync(path.join(ROOT, "node_modules", name)));
  if (modules.length > 0)
    return fail([`ops: node_modules/${modules[0]} is missing; run: npm ci --include=dev`], 1);
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
  return folders.map((folder) => path.join(folder, tool)).find(isExecutable);
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
  return process.getuid?.() === 0 && existsSync("/etc/debian_version") && find("apt-get") !== undefined;
}

function install(tools) {
  const packages = packagesOf(tools);
  process.stdout.write(`ops: installing ${packages.join(" ")} for ${tools.join(", ")}\n`);
  // A fresh machine has no package lists, an old one has lists that name what is gone.
  if (!hasPackageLists()) aptGet("update");
  else if (aptGet("install", ...packages)) return;
  else aptGet("update");
  aptGet("install", ...packages);
}

function hasPackageLists() {
  const folder = "/var/lib/apt/lists";
  return existsSync(folder) && readdirSync(folder).some((name) => name.includes("_Packages"));
}

function aptGet(command, ...packages) {
  const flags = ["-qq", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120"];
  process.stdout.write(`ops: apt-get ${[command, ...packages].join(" ")}\n`);
  const { status } = spawnSync("apt-get", [command, ...flags, ...packages], {
    env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
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
    `ops: npm ${mode === "demo" ? "run demo" : "test"} needs tools that are not on this machine:`,
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

// Runs the commands of docs/start.md as a reader would: in one bash, block after block, on three hosts over ssh.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { PROGRAM } from "./local-server.ts";
import { patience } from "./patience.ts";
import { PrivateSshd } from "./private-sshd.ts";

/** The longest time for the blocks of a page on a quiet machine. */
const PLAY_LIMIT_MS = 300_000;
/** The default key exchange costs ten times as much. */
const QUICK = "KexAlgorithms curve25519-sha256";

/** A fenced block of shell commands, with the output that the page shows below it. */
export interface Block {
  /** Where it begins in the page. */
  line: number;
  /** What stands behind `sh`: `settings` for what a reader changes, `fails` where the last command fails, `server` for a server. */
  mark: string;
  commands: string;
  /** Lines that the output has, in this order; `…` stands for anything. */
  shown: readonly string[];
}

/** What the commands of a block printed, and whether they went as the page says. */
export interface Played {
  block: Block;
  output: string;
  /** False for a block that failed although nothing says so, or the other way round; then nothing follows. */
  isRight: boolean;
}

/** All blocks of a page that are marked as shell, in their order. */
export function blocksOf(file: string): Block[] {
  const text = readFileSync(file, "utf8");
  const blocks: Block[] = [];
  for (const { 1: kind = "", 2: content = "", index } of text.matchAll(/^```(\w+(?: \w+)*)\n((?:.*\n)*?)^```$/gm)) {
    const last = blocks.at(-1);
    const [language, ...marks] = kind.split(" ");
    const mark = marks.join(" ");
    const line = text.slice(0, index).split("\n").length;
    if (language === "sh") blocks.push({ line, mark, commands: content, shown: [] });
    else if (language === "text" && last) last.shown = content.trimEnd().split("\n");
  }
  return blocks;
}

/** The blocks of docs/start.md for a bucket in the folder. */
export function startBlocks(): Block[] {
  return [...blocksOf(START_PAGE).filter(({ mark }) => !mark.startsWith("server")), END];
}

/** The same for a bucket on a server, with the commands that the page has for that. */
export function startBlocksOnServer(): Block[] {
  const [first, certificate, back] = blocksOf(START_PAGE).filter(({ mark }) => mark === "server") as [Block, Block, Block];
  return startBlocks().map((block) => {
    if (block.commands.includes("ops init")) return first;
    if (block.commands.includes("git checkout")) return back;
    const commands = block.commands
      .replaceAll("ops build", "ops push")
      .replaceAll("ops deploy --build", "ops push && ops deploy");
    return { ...block, commands: (commands.includes("ask() {") ? certificate.commands : "") + commands };
  });
}

/** The first line of what a page shows that an output lacks, or undefined. */
export function missingLine({ block, output }: Played): string | undefined {
  let rest = output.split("\n");
  for (const line of block.shown) {
    const parts = line.split("…").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    const at = rest.findIndex((one) => new RegExp(`^${parts.join(".*")}$`).test(one));
    if (at < 0) return line;
    rest = rest.slice(at + 1);
  }
  return undefined;
}

/** Three addresses of this machine that act as hosts, and what the settings of the page are for them. */
export class PageHosts {
  readonly settings: string;
  readonly #sshd: PrivateSshd;

  private constructor(folder: string, sshd: PrivateSshd) {
    this.#sshd = sshd;
    const settings = {
      ...Object.fromEntries(sshd.hosts.map((host, index) => [`HOST${index + 1}`, host])),
      ...{ SSH_USER: sshd.user, SSH_PORT: sshd.port, SSH_KEY: sshd.clientKey, WORKER_ROOT: path.join(folder, "hosts") },
    };
    this.settings = Object.entries(settings)
      .map(([name, value]) => `export ${name}=${value}\n`)
      .join("");
  }

  /** Starts an sshd for them; everything lies in the folder. */
  static async start(folder: string): Promise<PageHosts> {
    return new PageHosts(folder, await PrivateSshd.start(path.join(folder, "sshd"), ownAddresses(), [QUICK]));
  }

  /** Ends sshd and its sessions. What is deployed goes on. */
  async stop(): Promise<void> {
    await this.#sshd.stop();
  }
}

/** Three loopback addresses that hardly anybody else uses, so that each port of them is free. */
export function ownAddresses(): string[] {
  const [a, b] = [2 + ((process.pid >> 8) % 250), process.pid % 256];
  return [1, 2, 3].map((last) => `127.${a}.${b}.${last}`);
}

/** A block that stops what the page has deployed. */
export const END: Block = { line: 0, mark: "", commands: "ops job stop web,edge\n", shown: [] };

/**
 * Plays blocks one after the other until one is not right, in a home of its own below the folder. `settings` stand for those
 * of the page. `onText` gets output as it comes, and of which block.
 */
export async function play(
  folder: string,
  blocks: readonly Block[],
  settings: string,
  onText: (text: string, index: number) => void = () => {},
): Promise<Played[]> {
  const [bin, home] = [path.join(folder, "bin"), path.join(folder, "home")];
  for (const one of [bin, home]) mkdirSync(one, { recursive: true });
  symlinkSync(process.execPath, path.join(bin, "node"));
  writeFileSync(path.join(bin, "ops"), `#!/bin/sh\nexec node ${PROGRAM} "$@"\n`, { mode: 0o755 });
  const author = { GIT_AUTHOR_NAME: "you", GIT_AUTHOR_EMAIL: "you@example.org" };
  const committer = { GIT_COMMITTER_NAME: "you", GIT_COMMITTER_EMAIL: "you@example.org" };
  // After the limit, bash and what it waits for are ended.
  const limit = ["--kill-after=5", String(patience(PLAY_LIMIT_MS) / 1000)];
  const child = spawn("timeout", [...limit, "bash", "-c", scriptOf(blocks, settings)], {
    cwd: home,
    env: { ...process.env, ...author, ...committer, HOME: home, PATH: `${bin}:${process.env.PATH}` },
    stdio: ["ignore", "pipe", "ignore"],
  });
  let output = "";
  let at = -1;
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
    text.split(MARK).forEach((part, index) => {
      if (index > 0) at++;
      if (part !== "") onText(part, at);
    });
  });
  const [code] = (await once(child, "close")) as [number | null];
  const outputs = output.split(MARK).slice(1);
  const isWhole = code === 0 && outputs.length === blocks.length;
  return outputs.map((text, index) => {
    return { block: blocks[index] as Block, output: text, isRight: isWhole || index < outputs.length - 1 };
  });
}

function scriptOf(blocks: readonly Block[], settings: string): string {
  const parts = blocks.map(({ mark, commands }) => {
    if (mark === "settings") return settings;
    return mark === "fails" ? `set +e\n${commands}[ $? -ne 0 ] || exit 99\nset -e\n` : commands;
  });
  return `exec 2>&1\nset -eu\n${parts.map((part) => `printf %s '${MARK}'\n${part}`).join("")}`;
}

/** Stands in the output before that of each block. */
const MARK = "\u0001";

/** The page of the first service. */
const START_PAGE = fileURLToPath(new URL("../docs/start.md", import.meta.url));

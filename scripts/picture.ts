// `npm run picture`: plays docs/start.md on three hosts of this machine and draws what its broken release and the release
// after it printed, at the pace of the run, as docs/images/start.svg: a deploy that fails at a gate, is put back, and goes on.

import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { remove } from "../lib/core/files.ts";
import { type Block, END, PageHosts, play, startBlocks } from "./page.ts";

const TARGET = fileURLToPath(new URL("../docs/images/start.svg", import.meta.url));
const COLUMNS = 108;
const LINE_PX = 19;
const MARGIN_PX = 20;
const COLUMN_PX = 7.83;
/** The run is shown at its own pace, but nobody waits for longer than this. */
const PAUSE_MS = 1_600;
const TYPING_MS = 900;
const END_MS = 6_000;
/** Lines that a reader of the picture does not miss. */
const LEFT_OUT = /^(?:deploy of bucket|read |built |workers: )|: synced to | \| +(?:make status|running, pid)/;

/** A line of the picture, and when it comes. */
interface Line {
  at: number;
  text: string;
}

/** The lines of blocks, each command line by line and then what came while it was at work. */
function linesOf(parts: readonly { block: Block; pieces: readonly { at: number; text: string }[] }[]): Line[] {
  const lines: Line[] = [];
  let now = 0;
  for (const { block, pieces } of parts) {
    for (const command of block.commands.trimEnd().split("\n")) {
      lines.push({ at: now, text: `$ ${command}` });
      now += TYPING_MS / 3;
    }
    let before = pieces[0]?.at ?? 0;
    for (const { at, text } of pieces) {
      now += Math.min(at - before, PAUSE_MS);
      before = at;
      for (const line of text.split("\n")) {
        const isNews = line !== "" && !LEFT_OUT.test(line) && line !== lines.at(-1)?.text;
        if (isNews) lines.push({ at: now, text: line });
      }
    }
    now += TYPING_MS;
  }
  return lines;
}

/** An SVG that shows the lines one after the other, and again from the start; at once for who wants no motion. */
function draw(lines: readonly Line[]): string {
  const width = Math.ceil(COLUMNS * COLUMN_PX + 2 * MARGIN_PX);
  const height = lines.length * LINE_PX + 2 * MARGIN_PX;
  const whole = (lines.at(-1)?.at ?? 0) + END_MS;
  const frames = lines.map(({ at }, index) => {
    const share = Math.max(0.01, (100 * at) / whole).toFixed(2);
    return `@keyframes l${index}{0%{opacity:0}${share}%,100%{opacity:1}}#l${index}{animation:l${index} ${whole}ms step-end infinite}`;
  });
  const texts = lines.map(({ text }, index) => {
    const y = MARGIN_PX + (index + 0.75) * LINE_PX;
    return `<text id="l${index}" x="${MARGIN_PX}" y="${y}" class="${kindOf(text)}">${escaped(shortened(text))}</text>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-label="A deploy that fails at a gate, is put back, and goes on after the mistake is mended">
<style>
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d6dae1;white-space:pre}
.command{fill:#fff;font-weight:600}.bad{fill:#ff8a80}.good{fill:#8fd694}
${frames.join("\n")}
@media (prefers-reduced-motion:reduce){text{animation:none!important}}
</style>
<rect width="100%" height="100%" rx="10" fill="#1b1f27"/>
${texts.join("\n")}
</svg>
`;
}

function kindOf(text: string): string {
  if (text.startsWith("$ ")) return "command";
  if (/\b(?:error|failed|503|restor)/.test(text.replace(" 0 failed", ""))) return "bad";
  return /\b(?:passed|succeeded|deployed)\b/.test(text) ? "good" : "";
}

function shortened(text: string): string {
  return text.length > COLUMNS ? `${text.slice(0, COLUMNS - 1)}…` : text;
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

const folder = mkdtempSync(path.join(tmpdir(), "ops-picture-"));
const hosts = await PageHosts.start(folder);
try {
  const all = startBlocks();
  const broken = all.findIndex(({ mark }) => mark === "fails");
  const wanted = all.slice(broken, broken + 3);
  const blocks = [...all.slice(0, broken + 3), END];
  const pieces: { at: number; text: string }[][] = [];
  const played = await play(folder, blocks, hosts.settings, (text, index) => {
    if (pieces[index] === undefined) pieces[index] = [];
    pieces[index].push({ at: performance.now(), text });
  });
  const wrong = played.find(({ isRight }) => !isRight);
  if (wrong) throw new Error(`docs/start.md, line ${wrong.block.line}:\n${wrong.output}`);
  const shown = wanted.map((block, index) => ({ block, pieces: pieces[broken + index] ?? [] }));
  writeFileSync(TARGET, draw(linesOf(shown)));
  process.stdout.write(`${TARGET}\n`);
} finally {
  await hosts.stop();
  await remove(folder);
}

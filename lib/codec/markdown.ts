/** How deep lists and quotes may stand in each other; what lies deeper is text. */
const MOST_LEVELS = 20;
/** More than this many blank lines in a row end a list. */
const MOST_BLANKS = 20;

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const CLOSING = /(?:^|[ \t])#+[ \t]*$/;
const RULE_LINE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3}(?:[-*+]|(\d{1,9})[.)]))(?: {1,4}(?=\S)| |$)/;
const INDENTED = /^ {4}/;
const UNDERLINE = /^ {0,3}(=+|-+) *$/;
const COLUMN = /^:?-+:?$/;
const CELL = /(?:[^|\\]|\\.)+/g;

/**
 * One piece of text within a block: code, an escaped character, a link, an address, emphasis. Each is bounded, so that the
 * search from every opening mark stays short.
 */
const INLINE = new RegExp(
  [
    "(?<ticks>`{1,20})(?!`)(?<code>[^]{1,999}?)(?<!`)\\k<ticks>(?!`)",
    "\\\\(?<escaped>[!-/:-@[-`{-~])",
    '!?\\[(?<label>[^[\\]]{1,999})\\]\\(<?(?<target>(?:[^\\s()<>]|\\([^\\s()<>]{0,999}\\)){0,999})>?(?: +"[^"]{0,999}")?\\)',
    "<?(?<address>https?://[^\\s<>`|]{0,998}[^\\s<>`|.,:;!?'\")*_])>?",
    "(?<mark>\\*\\*|~~|\\*|(?<!\\w)__|(?<!\\w)_)(?=\\S)(?<inner>[^]{1,399}?)(?<=\\S)\\k<mark>(?!\\w)",
  ].join("|"),
  "g",
);
const ELEMENTS: Readonly<Record<string, string>> = { "**": "strong", __: "strong", "~~": "del", "*": "em", _: "em" };
/** An address of the web or mail, or one without a scheme. */
const SAFE_TARGET = /^(?:https?:\/\/|mailto:|[^:]*(?:[/?#]|$))/i;
const ENTITIES: Readonly<Record<string, string>> = {
  "&": "amp",
  "<": "lt",
  ">": "gt",
  '"': "quot",
  "'": "#39",
  "{": "#123",
  "}": "#125",
};

/** Text for HTML; braces are escaped too, since some readers of HTML take them for the marks of a template. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"'{}]/g, (character) => `&${ENTITIES[character]};`);
}

/**
 * Markdown as HTML: headings with anchors, paragraphs, lists, quotes, code, tables, rules, links and emphasis. HTML in it
 * is text. A link leads to the web, to a mail address or to a relative place, where `.md` becomes `.html`; what leads
 * elsewhere stays text.
 */
export function markdownToHtml(text: string): string {
  const lines = text.replace(/^\ufeff/, "").split(/\r?\n/);
  return blocksOf(lines.map((line) => line.replace(/^[ \t]+/, (blanks) => blanks.replaceAll("\t", "    "))));
}

/** The text of the first heading of a page that {@link markdownToHtml} made, as HTML without elements. */
export function firstHeading(html: string): string | undefined {
  return /<h[1-6] id="[^"]*">.*?<\/h[1-6]>/s.exec(html)?.[0].replace(/<[^>]*>/g, "");
}

/** The lines that are not read yet. */
class MarkdownLines {
  readonly #all: readonly string[];
  #at = 0;

  constructor(all: readonly string[]) {
    this.#all = all;
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#all.length;
  }

  /** A line to come; behind the end an empty one. */
  peek(ahead = 0): string {
    return this.#all[this.#at + ahead] ?? "";
  }

  take(): string {
    const line = this.peek();
    this.#at += 1;
    return line;
  }

  takeWhile(belongs: (line: string) => boolean): string[] {
    const start = this.#at;
    while (!this.isAtEnd && belongs(this.peek())) this.#at += 1;
    return this.#all.slice(start, this.#at);
  }
}

/** Takes the lines of one block and answers its HTML; undefined where another block stands there. */
type BlockReader = (lines: MarkdownLines, level: number) => string | undefined;

const BLOCKS: readonly BlockReader[] = [fence, heading, ruleLine, quote, list, indented, table];

function blocksOf(given: readonly string[], level = 0, isTight = false): string {
  const lines = new MarkdownLines(given);
  const blocks: string[] = [];
  while (!lines.isAtEnd) {
    if (isBlank(lines.peek())) lines.take();
    else blocks.push(blockOf(lines, level) ?? paragraph(lines, isTight));
  }
  return blocks.join("\n");
}

function blockOf(lines: MarkdownLines, level: number): string | undefined {
  for (const read of BLOCKS) {
    const html = read(lines, level);
    if (html !== undefined) return html;
  }
  return undefined;
}

function fence(lines: MarkdownLines): string | undefined {
  const mark = FENCE.exec(lines.peek())?.[1];
  if (mark === undefined) return undefined;
  lines.take();
  const code = lines.takeWhile((line) => !(FENCE.exec(line)?.[1]?.startsWith(mark) && /^(.)\1*$/.test(line.trim())));
  lines.take();
  return preformatted(code);
}

function indented(lines: MarkdownLines): string | undefined {
  if (!INDENTED.test(lines.peek())) return undefined;
  const code = lines.takeWhile((line) => INDENTED.test(line) || isBlank(line));
  while (isBlank(code.at(-1) ?? "x")) code.pop();
  return preformatted(code.map((line) => line.slice(4)));
}

function preformatted(code: readonly string[]): string {
  return `<pre><code>${escapeHtml(code.map((line) => `${line}\n`).join(""))}</code></pre>`;
}

function heading(lines: MarkdownLines): string | undefined {
  const [, marks, text = ""] = HEADING.exec(lines.peek()) ?? [];
  if (marks === undefined) return undefined;
  lines.take();
  return headingOf(marks.length, text.replace(CLOSING, ""));
}

function headingOf(level: number, text: string): string {
  const anchor = text
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, "");
  return `<h${level} id="${anchor.replaceAll(" ", "-")}">${inline(text.trim())}</h${level}>`;
}

function ruleLine(lines: MarkdownLines): string | undefined {
  if (!RULE_LINE.test(lines.peek())) return undefined;
  lines.take();
  return "<hr>";
}

function quote(lines: MarkdownLines, level: number): string | undefined {
  if (!QUOTE.test(lines.peek()) || level >= MOST_LEVELS) return undefined;
  const own = lines.takeWhile((line) => QUOTE.test(line)).map((line) => line.replace(QUOTE, ""));
  return `<blockquote>${blocksOf(own, level + 1)}</blockquote>`;
}

function list(lines: MarkdownLines, level: number): string | undefined {
  const start = ITEM.exec(lines.peek());
  if (!start || level >= MOST_LEVELS) return undefined;
  const [, , number] = start;
  const isNumbered = number !== undefined;
  const items: string[][] = [];
  for (let item = start; item && !RULE_LINE.test(lines.peek()); item = ITEM.exec(lines.peek()) as RegExpExecArray) {
    if ((item[2] !== undefined) !== isNumbered) break;
    items.push(itemLines(lines, item[0].length));
  }
  // A blank line between items, or within one, makes their texts paragraphs.
  const isTight = !items.flat().slice(0, -1).some(isBlank);
  const html = items.map((item) => `<li>${blocksOf(item, level + 1, isTight)}</li>`).join("\n");
  const first = isNumbered && Number(number) !== 1 ? ` start="${Number(number)}"` : "";
  return isNumbered ? `<ol${first}>\n${html}\n</ol>` : `<ul>\n${html}\n</ul>`;
}

/** The lines of an item without its mark: what is indented, with blank lines before it, and text that goes on. */
function itemLines(lines: MarkdownLines, width: number): string[] {
  const least = Math.min(width, 2);
  const item = [lines.take().slice(width)];
  while (!lines.isAtEnd) {
    let blanks = 0;
    while (blanks < MOST_BLANKS && isBlank(lines.peek(blanks))) blanks += 1;
    const next = lines.peek(blanks);
    const isOwn = indentOf(next) >= least && !isBlank(next);
    const goesOn = isOwn || (blanks === 0 ? !startsBlock(next) : ITEM.test(next));
    if (!goesOn) break;
    for (let count = blanks; count > 0; count -= 1) item.push(lines.take().trim());
    if (blanks > 0 && !isOwn) break;
    item.push(lines.take().slice(Math.min(width, indentOf(next))));
  }
  return item;
}

function table(lines: MarkdownLines): string | undefined {
  const [head, below] = [lines.peek(), lines.peek(1)];
  if (!head.includes("|") || !below.includes("-")) return undefined;
  const [names, columns] = [cellsOf(head), cellsOf(below)];
  if (names.length !== columns.length || !columns.every((column) => COLUMN.test(column))) return undefined;
  for (const _ of [head, below]) lines.take();
  const rows = lines.takeWhile((line) => !isBlank(line) && !startsBlock(line));
  const row = (cells: readonly string[], element: string) =>
    `<tr>${names.map((_, index) => `<${element}>${inline(cells[index] ?? "")}</${element}>`).join("")}</tr>`;
  return `<table>\n${[row(names, "th"), ...rows.map((line) => row(cellsOf(line), "td"))].join("\n")}\n</table>`;
}

function cellsOf(line: string): string[] {
  const inner = line
    .trim()
    .replace(/^\|/, "")
    .replace(/(?<!\\)\|$/, "");
  return (
    `${inner}|`
      .replaceAll("||", "| |")
      .match(CELL)
      ?.map((cell) => cell.trim().replaceAll("\\|", "|")) ?? []
  );
}

function paragraph(lines: MarkdownLines, isTight: boolean): string {
  const first = lines.take();
  const more = lines.takeWhile((line) => !isBlank(line) && !UNDERLINE.test(line) && !startsBlock(line));
  const text = [first, ...more]
    .map((line) => line.trimStart())
    .join("\n")
    .trimEnd();
  const [, underline] = UNDERLINE.exec(lines.peek()) ?? [];
  if (underline === undefined) return isTight ? inline(text) : `<p>${inline(text)}</p>`;
  lines.take();
  return headingOf(underline.startsWith("=") ? 1 : 2, text);
}

function startsBlock(line: string): boolean {
  return [FENCE, HEADING, RULE_LINE, QUOTE, ITEM].some((start) => start.test(line));
}

function inline(text: string): string {
  let html = "";
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    html += plain(text.slice(end, match.index)) + inlineOf(match[0], match.groups ?? {});
    end = match.index + match[0].length;
  }
  return html + plain(text.slice(end));
}

function inlineOf(
  whole: string,
  { code, escaped, label, target, address, mark, inner }: Record<string, string | undefined>,
): string {
  if (code !== undefined) return `<code>${escapeHtml(code.replace(/^ (?=.*\S)(.*) $/s, "$1"))}</code>`;
  if (escaped !== undefined) return escapeHtml(escaped);
  if (address !== undefined) return `<a href="${escapeHtml(address)}">${escapeHtml(address)}</a>`;
  if (mark !== undefined) return `<${ELEMENTS[mark]}>${inline(inner ?? "")}</${ELEMENTS[mark]}>`;
  if (label === undefined || target === undefined || !SAFE_TARGET.test(target)) return escapeHtml(whole);
  const place = /^[a-z]+:/i.test(target) ? target : target.replace(/\.md(?=#|$)/, ".html");
  return `<a href="${escapeHtml(place)}">${inline(label)}</a>`;
}

/** Text without marks; two blanks at the end of a line break it. */
function plain(text: string): string {
  return escapeHtml(text).replace(/(?<! ) {2,}\n/g, "<br>\n");
}

function isBlank(line: string): boolean {
  return line.trim() === "";
}

function indentOf(line: string): number {
  return line.length - line.trimStart().length;
}

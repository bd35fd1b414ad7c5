const [RED, GREEN, CYAN, BOLD, END] = ["\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[1m", "\x1b[0m"];
const COLOURS: Record<string, string> = { "-": RED, "+": GREEN, "@": CYAN };

/** Lines of a log with diffs in it, indented or not, for a terminal: what goes red, what comes green, names of files bold. */
export function diffColours(text: string): string {
  return text.replace(/^( *)((?:@@ |[-+]).*)$/gm, (_, indent: string, line: string) => {
    const colour = /^(---|\+\+\+) /.test(line) ? BOLD : COLOURS[line.charAt(0)];
    return `${indent}${colour}${line}${END}`;
  });
}

import { spawn } from "node:child_process";
import { once } from "node:events";
import { COMMAND } from "../../scripts/local-server.ts";
import { patience } from "../../scripts/patience.ts";

const ANSWER_LIMIT_MS = 10_000;

/** Runs a program in a terminal of its own; each text of a pair is typed once the one before it has been shown. */
const PTY = `
import json, os, pty, sys
typed, argv = json.loads(sys.argv[1]), sys.argv[2:]
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(argv[0], argv)
unseen = ""
while True:
    try:
        shown = os.read(terminal, 65536)
    except OSError:
        break
    if not shown:
        break
    sys.stdout.buffer.write(shown)
    unseen += shown.decode(errors="replace")
    while typed and typed[0][0] in unseen:
        question, text = typed.pop(0)
        unseen = unseen.split(question, 1)[1]
        os.write(terminal, text.encode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
`;

/**
 * Runs the program at a terminal, where a person types what follows each question, and answers how it ended and all that the
 * terminal showed.
 */
export async function opsAtTerminal(
  args: readonly string[],
  typed: readonly (readonly [question: string, text: string])[],
  options: { cwd?: string; env?: Record<string, string> } = {},
): Promise<{ code: number | null; shown: string }> {
  // A question that nobody expects would wait for ever.
  const limit = String(patience(ANSWER_LIMIT_MS) / 1_000);
  const child = spawn("timeout", [limit, "python3", "-c", PTY, JSON.stringify(typed), ...COMMAND, ...args], {
    cwd: options.cwd,
    env: { ...process.env, ...options.env },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let shown = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    shown += text;
  });
  const [code] = (await once(child, "close")) as [number | null];
  return { code, shown };
}

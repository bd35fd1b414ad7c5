import type { CommandRow } from "../base/flags.ts";
import { toStderr } from "../base/terminal.ts";

/** A command under the name that it had in the earlier form. It says so on stderr; the help does not show it. */
export function olderSpelling(name: string, command: CommandRow): CommandRow {
  const { run, remote } = command;
  const note = () => toStderr(`ops: note: \`ops ${name}\` is an older spelling of \`ops ${command.name}\`\n`);
  const say =
    <A extends unknown[]>(work: (...args: A) => Promise<number>) =>
    async (...args: A): Promise<number> => {
      note();
      return await work(...args);
    };
  return { ...command, name, hidden: true, ...(run && { run: say(run) }), ...(remote && { remote: say(remote) }) };
}

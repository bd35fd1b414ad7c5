import { COMMANDS } from "../../lib/cli/main.ts";
import { serviceUnit } from "../../lib/cli/server/unit.ts";
import { type Edition, manPages } from "../man-pages.ts";
import type { ReleaseFile } from "./archive.ts";

/** Starts the program with the Node beside it, also through a symbolic link. */
const LAUNCHER = `#!/bin/sh
here=$(readlink -f -- "$0")
here=\${here%/*}
exec "$here/node/bin/node" "$here/bin/ops.js" "$@"
`;
/** Where docs/install.md unpacks an archive. */
const PLACE = "/opt/ops";
/** Which file of the program a shell looks for under which name. */
const COMPLETIONS = { bash: "ops.bash", zsh: "_ops", fish: "ops.fish" };

/** What an archive has for the system around the program: launcher, unit of the service, completions, man pages. */
export function systemFiles(program: readonly ReleaseFile[], edition: Edition): ReleaseFile[] {
  const plain = (path: string, text: string) => ({ path, mode: 0o644, content: Buffer.from(text) });
  const completions = Object.entries(COMPLETIONS).map(([shell, name]) => {
    const script = program.find((file) => file.path === `lib/cli/scripts/completion.${shell}`);
    if (!script) throw new Error(`the program has no completion for ${shell}`);
    return { ...script, path: `completions/${name}` };
  });
  const timer = ["ops-snapshot@.service", "ops-snapshot@.timer"].map((name) => {
    const unit = program.find((file) => file.path === `lib/cli/scripts/${name}`);
    if (!unit) throw new Error(`the program has no unit ${name}`);
    return { ...unit, path: `systemd/${name}` };
  });
  return [
    { path: "ops", mode: 0o755, content: Buffer.from(LAUNCHER) },
    plain("systemd/ops.service", serviceUnit({}, [`${PLACE}/node/bin/node`, `${PLACE}/bin/ops.js`])),
    ...timer,
    ...completions,
    ...[...manPages(COMMANDS, edition)].map(([name, text]) => plain(`man/man1/${name}`, text)),
  ];
}

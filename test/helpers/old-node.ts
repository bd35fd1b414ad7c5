import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";

/** A Node that is too old, as Debian has; where there is none, this Node with an old version number for the wrapper. */
export const OLD_NODE = oldNode();

function oldNode(): [string, ...string[]] {
  for (const file of ["/usr/bin/node", "/usr/local/bin/node"])
    if (existsSync(file) && Number.parseInt(execFileSync(file, ["-p", "process.versions.node"]).toString(), 10) < 24)
      return [file];
  const pretend = `Object.defineProperty(process,"versions",{value:{...process.versions,node:"20.0.0"}})`;
  return [process.execPath, "--import", `data:text/javascript,${encodeURIComponent(pretend)}`];
}

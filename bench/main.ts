// `npm run bench -- <name> …`: measures side by side, in one run, and prints medians and ratios. Not a test.
import { build } from "./build.ts";
import { deploy } from "./deploy.ts";
import { drift } from "./drift.ts";
import { fleet } from "./fleet.ts";
import { hooks } from "./hooks.ts";
import { http } from "./http.ts";
import { push } from "./push.ts";
import { scale } from "./scale.ts";
import { start } from "./start.ts";
import { ui } from "./ui.ts";
import { watch } from "./watch.ts";

const BENCHMARKS: Record<string, () => Promise<void>> = {
  start,
  build,
  deploy,
  drift,
  fleet,
  hooks,
  http,
  push,
  scale,
  ui,
  watch,
};

const names = process.argv.slice(2).filter((argument) => argument !== "--");
for (const name of names.length > 0 ? names : Object.keys(BENCHMARKS)) {
  const benchmark = BENCHMARKS[name];
  if (!benchmark) {
    console.error(`there is no benchmark ${JSON.stringify(name)}; there are: ${Object.keys(BENCHMARKS).join(", ")}`);
    process.exit(2);
  }
  await benchmark();
}

import { el } from "./dom.js";
import { count, status } from "./format.js";

/**
 * What workers answered to one command, the same answers folded into one: first those that failed, then the rarest, for
 * what is unlike the rest is what one looks for.
 */
export function outputGroups(workers) {
  const groups = [...Map.groupBy(workers, (one) => JSON.stringify([stateOf(one), outputOf(one)])).values()];
  groups.sort(
    ([a, ...more], [b, ...others]) => Number(isGood(a)) - Number(isGood(b)) || more.length - others.length,
  );
  return el(
    "div",
    { class: "outputs" },
    ...groups.map((group, index) => groupOf(group, index === 0 || group.length <= 3)),
  );
}

function groupOf(group, open) {
  const [first] = group;
  const names = group.map(({ worker }) => worker).join(", ");
  const output = outputOf(first);
  return el(
    "details",
    { open },
    el(
      "summary",
      {},
      status(stateOf(first)),
      " ",
      el("b", {}, count(group.length, "worker")),
      " ",
      el("span", { class: "about" }, names),
    ),
    el(
      "pre",
      { tabindex: 0, role: "group", "aria-label": `Output of ${names}` },
      output === "" ? "(no output)" : output,
    ),
  );
}

function isGood(one) {
  return stateOf(one) === "ok" || stateOf(one) === "succeeded";
}

function stateOf({ outcome, status: state, exit_code: code }) {
  const word = outcome ?? state ?? (code === 0 ? "succeeded" : "failed");
  return code === undefined || code === null || code === 0 ? word : `${word} (exit code ${code})`;
}

function outputOf({ output, stdout = "", stderr = "", error }) {
  return [output ?? `${stdout}${stderr}`, error].filter((text) => text).join("\n");
}

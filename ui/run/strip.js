// The rollout of a job as a strip: a bar for each worker, batch by batch, in the order in which they are taken.
import { el } from "../base/dom.js";
import { count, joined } from "../base/text.js";
import { markOf, rowAbout, WORST_FIRST } from "../parts/state.js";

/** With more workers each batch is one bar. */
const MOST_BARS = 120;
/** How many waves a stepper names at most. */
const MOST_STEPS = 6;

/** @param {{ worker: string, batch: number, state: string }[]} hosts */
export function batchStrip(hosts) {
  const words = Map.groupBy(hosts, ({ state }) => markOf(state));
  const told = WORST_FIRST.filter((word) => words.has(word)).map((word) => `${words.get(word).length} ${word}`);
  const batches = [...Map.groupBy(hosts, ({ batch }) => batch).values()];
  const isDense = hosts.length > MOST_BARS;
  const label = `${count(hosts.length, "worker")}: ${told.join(", ")}`;
  return el("span.batches", { role: "img", "aria-label": label }, batches.map(isDense ? oneBar : bars));
}

function bars(own) {
  const barOfHost = ({ worker, state }) => el("i", { class: markOf(state), title: `${worker}: ${state.replaceAll("_", " ")}` });
  return el("span", own.map(barOfHost));
}

/** A batch as one bar: its worst state, and its height the part that is done. */
function oneBar(own) {
  const words = own.map(({ state }) => markOf(state));
  const worst = WORST_FIRST.find((word) => words.includes(word));
  const done = words.filter((word) => word !== "waiting" && word !== "running").length;
  const bar = el("i", { class: worst });
  if (worst !== "failed") bar.style.height = `${Math.max(20, (100 * done) / own.length)}%`;
  return el("span", bar);
}

/** Waves as steps. @param {{ wave: number, jobs: number, done: number, failed: number, running: number, not_started: number }[]} waves */
export function stepper(waves, isActive) {
  const states = waves.map((one) => waveState(one, isActive));
  const current = states.lastIndexOf("running");
  const kept = new Set([0, states.lastIndexOf("failed"), current, current + 1, waves.length - 1]);
  const shown = waves.length <= MOST_STEPS ? waves : waves.filter((_, index) => kept.has(index));
  const steps = shown.map((wave) => {
    const state = waveState(wave, isActive);
    const key = String(wave.wave);
    return el("li", { class: state, key }, rowAbout(state, `Wave ${key}`), " ", saidOf(wave, state));
  });
  const left = waves.length - shown.length;
  return el("ol.steps", { "aria-label": "Waves" }, steps, left > 0 && el("li", `+ ${left}`));
}

/** The state of a wave. */
export function waveState({ jobs, done, failed, running }, isActive) {
  if (failed > 0) return "failed";
  if (running > 0 || (isActive && done > 0 && done < jobs)) return "running";
  return done === jobs ? "changed" : "waiting";
}

function saidOf({ jobs, done, failed, not_started: left }, state) {
  if (state === "changed" || state === "waiting") return count(jobs, "job");
  if (failed === 0) return `${done} of ${count(jobs, "job")}`;
  return joined(`${failed} of ${count(jobs, "job")} failed`, left > 0 && `${left} not started`);
}

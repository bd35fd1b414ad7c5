// Changes lib in many small ways, one at a time, and wants the tests to notice.
import { readFileSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import path from "node:path";
import { type Draw, draw, folderOf, type Mutant, mutated } from "./mutant-draw.ts";
import { Copy, type Reach, reaches, testsThatSee } from "./mutant-tests.ts";

/** What became of a mutant. `by`: the test file that noticed; `seen`: how many test files run its code. */
export interface Outcome {
  mutant: Mutant;
  verdict: "killed" | "timed out" | "survived";
  by?: string;
  seen: number;
}

/** How many of all the mutants must be noticed. Of the protected kinds, every one must be. */
const LEAST_SHARE = 0.85;
/** A mutant of no protected kind is tried on as many test files as usually take this long together. */
const MOST_MS = 40_000;
/** How much longer than usual a test file may take before it counts as stuck: so many times, and this. */
const SLOWER = 4;
const SLACK_MS = 20_000;

/** Draws so many mutants, tries each and answers the report. Throws what is wrong with the tests, with the report. */
export async function proveMutants(
  root: string,
  folder: string,
  seed: number,
  count: number,
): Promise<string> {
  const copies = Array.from({ length: availableParallelism() + 1 }, (_, index) => {
    return new Copy(path.join(folder, String(index)), root);
  });
  const all = await reaches(copies, path.join(tmpdir(), "ops-mutants"));
  const { mutants, ...passedOver } = draw(copies[0]?.tree ?? "", seed, count);
  const outcomes = await tryAll(copies, mutants, all);
  const report = reportOf(seed, outcomes, passedOver);
  const bad = outcomes.filter(({ verdict, mutant }) => verdict === "survived" && mutant.kind !== "other");
  const share = outcomes.filter(({ verdict }) => verdict !== "survived").length / outcomes.length;
  if (bad.length > 0 || share < LEAST_SHARE)
    throw new Error(
      `${report}; protected ones that live:\n${bad.map(({ mutant }) => textOf(mutant)).join("\n")}`,
    );
  return report;
}

/** Tries every mutant, one in each copy at a time. */
export async function tryAll(
  copies: readonly Copy[],
  mutants: readonly Mutant[],
  all: readonly Reach[],
  { tell = console.log as (line: string) => void, slackMs = SLACK_MS } = {},
): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  const left = [...mutants];
  const work = async (copy: Copy) => {
    for (let mutant = left.shift(); mutant; mutant = left.shift()) {
      const outcome = await attempt(copy, mutant, all, slackMs);
      outcomes.push(outcome);
      const { verdict, by = `${outcome.seen} test files see it` } = outcome;
      tell(`${outcomes.length}/${mutants.length} ${verdict} (${by}): ${textOf(mutant)}`);
    }
  };
  await Promise.all(copies.map(work));
  return outcomes;
}

function textOf({ file, kind, before, after }: Mutant): string {
  return `${kind} ${JSON.stringify({ file, before, after })}`;
}

async function attempt(copy: Copy, mutant: Mutant, all: readonly Reach[], slackMs: number): Promise<Outcome> {
  const file = path.join(copy.tree, mutant.file);
  const source = readFileSync(file, "utf8");
  const tests = testsThatSee(mutant, all, copy.tree);
  const seen = tests.length;
  writeFileSync(file, mutated(mutant, source));
  try {
    let spent = 0;
    for (const { file: by, ms } of tests) {
      const verdict = await copy.run(by, slackMs + SLOWER * ms);
      if (verdict === "timed out") return { mutant, verdict, by, seen };
      // What fails only once may have failed for another reason.
      if (verdict === "failed" && (await copy.run(by, slackMs + SLOWER * ms)) !== "passed")
        return { mutant, verdict: "killed", by, seen };
      spent += ms;
      if (mutant.kind === "other" && spent > MOST_MS) break;
    }
    return { mutant, verdict: "survived", seen };
  } finally {
    writeFileSync(file, source);
  }
}

function reportOf(seed: number, outcomes: readonly Outcome[], passedOver: Omit<Draw, "mutants">): string {
  const shares = (of: (one: Mutant) => string) =>
    [...Map.groupBy(outcomes, ({ mutant }) => of(mutant))]
      .map(([name, own]) => `${name} ${own.length - count(own, "survived")}/${own.length}`)
      .sort()
      .join(", ");
  const killed = outcomes.length - count(outcomes, "survived");
  return [
    `seed ${seed}: ${killed} of ${outcomes.length} mutants were noticed by tests (${count(outcomes, "timed out")} by a time-out)`,
    `by folder: ${shares(({ file }) => folderOf(file))}`,
    `by kind: ${shares(({ kind }) => kind)}`,
    `not tried: ${passedOver.refusedByTypes} that the types refuse, ${passedOver.equivalent} that change nothing`,
  ].join("; ");
}

function count(outcomes: readonly Outcome[], verdict: Outcome["verdict"]): number {
  return outcomes.filter((one) => one.verdict === verdict).length;
}

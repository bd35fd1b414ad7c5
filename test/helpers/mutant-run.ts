// Makes many small changes of lib, one at a time, and counts those that the tests notice.
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
/** A mutant of kind `other` is tried on test files that usually take this long together. */
const MOST_MS = 90_000;
/** A test file counts as stuck after this many times its usual duration, and the slack. */
const SLOWER = 4;
const SLACK_MS = 20_000;

/** Draws `count` mutants, tries each and answers the report. Throws the report where the tests notice too few. */
export async function proveMutants(root: string, folder: string, seed: number, count: number): Promise<string> {
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
    throw new Error(`${report}; protected ones that live:\n${bad.map(({ mutant }) => textOf(mutant)).join("\n")}`);
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
  const trials = new Trials(all, slackMs);
  const work = async (copy: Copy) => {
    for (let mutant = left.shift(); mutant; mutant = left.shift()) {
      const outcome = await trials.attempt(copy, mutant);
      outcomes.push(outcome);
      const { verdict, by = `${outcome.seen} test files see it` } = outcome;
      tell(`${outcomes.length}/${mutants.length} ${verdict} (${by}): ${textOf(mutant)}`);
    }
  };
  await Promise.all(copies.map(work));
  return outcomes;
}

class Trials {
  readonly #all: readonly Reach[];
  readonly #slackMs: number;
  /** By test file: whether it passes without a change. Found out when the file first seems to notice a mutant. */
  readonly #sound = new Map<string, Promise<boolean>>();

  constructor(all: readonly Reach[], slackMs: number) {
    this.#all = all;
    this.#slackMs = slackMs;
  }

  async attempt(copy: Copy, mutant: Mutant): Promise<Outcome> {
    const file = path.join(copy.tree, mutant.file);
    const source = readFileSync(file, "utf8");
    const tests = testsThatSee(mutant, this.#all, copy.tree);
    const seen = tests.length;
    let spent = 0;
    for (const test of tests) {
      writeFileSync(file, mutated(mutant, source));
      const verdict = await this.#verdict(copy, test);
      writeFileSync(file, source);
      if (verdict !== "survived" && (await this.#isSound(copy, test))) return { mutant, verdict, by: test.file, seen };
      spent += test.ms;
      if (mutant.kind === "other" && spent > MOST_MS) break;
    }
    return { mutant, verdict: "survived", seen };
  }

  /** Runs a test file that fails once more: a single failure may have another reason than the mutant. */
  async #verdict(copy: Copy, { file, ms }: Reach): Promise<Outcome["verdict"]> {
    const limit = this.#slackMs + SLOWER * ms;
    const first = await copy.run(file, limit);
    if (first === "timed out") return first;
    return first === "failed" && (await copy.run(file, limit)) !== "passed" ? "killed" : "survived";
  }

  #isSound(copy: Copy, { file, ms }: Reach): Promise<boolean> {
    const known = this.#sound.get(file);
    const sound = known ?? copy.run(file, this.#slackMs + SLOWER * ms).then((verdict) => verdict === "passed");
    this.#sound.set(file, sound);
    return sound;
  }
}

function textOf({ file, kind, before, after }: Mutant): string {
  return `${kind} ${JSON.stringify({ file, before, after })}`;
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

// Chooses the mutants to try: drawn by a seed from every folder of lib, without those that the types refuse.
import { spawnSync } from "node:child_process";
import { globSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type Mutation, mutationsOf } from "./mutations.ts";
import { seeded } from "./random.ts";

/** A file of lib with one change, and the lines around the change before and after, in one line each. */
export interface Mutant extends Mutation {
  file: string;
  before: string;
  after: string;
}

/** A mutant that does what the original does, so that no test can tell them apart; `why` says how so. */
export type Equivalent = Pick<Mutant, "file" | "before" | "after"> & { why: string };

/** What was drawn, and how many were passed over on the way. */
export interface Draw {
  mutants: Mutant[];
  refusedByTypes: number;
  equivalent: number;
}

const EQUIVALENTS = new URL("../fixtures/equivalent-mutants.json", import.meta.url);

/** The mutants that are known to change nothing. */
export function equivalents(): Equivalent[] {
  return JSON.parse(readFileSync(EQUIVALENTS, "utf8"));
}

/** Every mutant of every file below `lib`. */
export function allMutants(root: string): Mutant[] {
  const files = globSync("lib/**/*.ts", { cwd: root }).sort();
  return files.flatMap((file) => mutantsOf(root, file));
}

/** Every mutant of one file. */
export function mutantsOf(root: string, file: string): Mutant[] {
  const source = readFileSync(path.join(root, file), "utf8");
  return mutationsOf(source).map((mutation) => {
    const from = source.lastIndexOf("\n", mutation.start - 1) + 1;
    const to = (source.indexOf("\n", mutation.end) + source.length + 1) % (source.length + 1);
    const plain = (text: string) => text.trim().replace(/\s+/g, " ");
    const after = source.slice(from, mutation.start) + mutation.becomes + source.slice(mutation.end, to);
    return { ...mutation, file, before: plain(source.slice(from, to)), after: plain(after) };
  });
}

/** The text of the mutant's file with its change. */
export function mutated(mutant: Mutant, source: string): string {
  return source.slice(0, mutant.start) + mutant.becomes + source.slice(mutant.end);
}

/** The folder of lib that a file is in. */
export function folderOf(file: string): string {
  return file.split("/")[1] ?? "";
}

/**
 * Draws `count` mutants: half of them evenly over the folders, the others by the number of places in each folder. The
 * types are checked in `tree`, a copy of the project.
 */
export function draw(tree: string, seed: number, count: number, from = allMutants(tree)): Draw {
  const known = equivalents();
  const drawn: Draw = { mutants: [], refusedByTypes: 0, equivalent: 0 };
  const folders = Map.groupBy(from, ({ file }) => folderOf(file));
  let share = 0;
  const decks = [...folders.values()].map((deck) => {
    const before = Math.round(share);
    share += (count / 2) * (1 / folders.size + deck.length / from.length);
    return { deck: shuffled(deck, seeded(seed)), wants: Math.round(share) - before };
  });
  while (decks.some(({ deck, wants }) => wants > 0 && deck.length > 0)) {
    const hands = decks.map((one) => ({ one, hand: one.deck.splice(0, 2 * one.wants) }));
    const refused = refusedByTypes(
      tree,
      hands.flatMap(({ hand }) => hand),
    );
    for (const { one, hand } of hands)
      for (const mutant of hand) {
        if (one.wants === 0) break;
        if (known.some((equal) => isSame(equal, mutant))) drawn.equivalent++;
        else if (refused.has(mutant)) drawn.refusedByTypes++;
        else {
          one.wants--;
          drawn.mutants.push(mutant);
        }
      }
  }
  return drawn;
}

/** Whether two mutants have the same text in the same file, at whatever place in that file. */
export function isSame(one: Omit<Equivalent, "why">, other: Omit<Equivalent, "why">): boolean {
  return one.file === other.file && one.before === other.before && one.after === other.after;
}

function shuffled<T>(values: readonly T[], random: () => number): T[] {
  return values
    .map((value) => ({ value, at: random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ value }) => value);
}

/** The mutants that tsc refuses; what is merely unused counts as taken. One run of tsc tries a mutant of every file. */
function refusedByTypes(tree: string, mutants: readonly Mutant[]): Set<Mutant> {
  const options = { noUnusedLocals: false, noUnusedParameters: false };
  const project = { extends: "./tsconfig.json", include: ["lib"], compilerOptions: options };
  writeFileSync(path.join(tree, "mutants.json"), JSON.stringify(project));
  const refused = new Set<Mutant>();
  const waiting = Map.groupBy(mutants, ({ file }) => file);
  while (waiting.size > 0) {
    const now = [...waiting].map(([file, all]) => ({ file, mutant: all.pop(), left: all.length }));
    const sources = now.map(({ file, mutant }) => {
      const source = readFileSync(path.join(tree, file), "utf8");
      if (mutant) writeFileSync(path.join(tree, file), mutated(mutant, source));
      return { file, source };
    });
    const faulty = filesWithMistakes(tree);
    for (const { file, source } of sources) writeFileSync(path.join(tree, file), source);
    for (const { file, mutant, left } of now) {
      if (mutant && faulty.has(file)) refused.add(mutant);
      if (left === 0) waiting.delete(file);
    }
  }
  return refused;
}

function filesWithMistakes(tree: string): Set<string> {
  const tsc = path.join(tree, "node_modules/.bin/tsc");
  const { stdout, status, error } = spawnSync(tsc, ["-p", "mutants.json", "--pretty", "false"], {
    cwd: tree,
    encoding: "utf8",
    maxBuffer: 1 << 28,
  });
  if (status === null) throw new Error(`${tsc} could not check the types: ${error?.message}`);
  const files = new Set([...stdout.matchAll(/^(lib\/[^(\n]+)\(\d+,\d+\): error/gm)].map(([, file = ""]) => file));
  if (status !== 0 && files.size === 0) throw new Error(`${tsc} found nothing to check: ${stdout}`);
  return files;
}

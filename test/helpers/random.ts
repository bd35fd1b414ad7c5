// All random choices of the tests come from one seed, so that a failure can be repeated.
import process from "node:process";

/** The seed of this process: OPS_TEST_SEED, or one from the clock. */
export const SEED = Number(process.env.OPS_TEST_SEED ?? Date.now() % 1_000_000);

process.on("exit", (code) => {
  if (code !== 0) process.stderr.write(`Again with the same random choices: OPS_TEST_SEED=${SEED}\n`);
});

/** Numbers in [0, 1) that look random and are the same for the same seed (mulberry32). */
export function seeded(seed = SEED): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** `length` bytes from such a series of numbers. */
export function randomly(random: () => number, length: number): Buffer {
  return Buffer.from(Array.from({ length }, () => Math.floor(random() * 256)));
}

// Commands without their process: what they are given, and what they print.
import type { TestContext } from "node:test";
import type { Parsed } from "../../lib/cli/base/flags.ts";

/** A command line as the parser answers it. */
export function parsed(values: Record<string, string> = {}, switches: string[] = [], operands: string[] = []): Parsed {
  return { operands, values: new Map(Object.entries(values)), switches: new Set(switches) };
}

/**
 * The text that is written meanwhile, to stdout and to stderr. With `closed` nobody reads stdout. Bytes pass: with them the
 * test runner tells how other tests ended.
 */
export async function printed<T>(t: TestContext, work: () => T | Promise<T>, { closed = false } = {}) {
  const told = { out: "", err: "" };
  const write = process.stdout.write.bind(process.stdout);
  const out = t.mock.method(process.stdout, "write", ((text: string | Uint8Array, done?: (error?: Error | null) => void) => {
    if (typeof text !== "string") return write(text, done);
    told.out += text;
    done?.(closed ? new Error("EPIPE") : null);
    return true;
  }) as typeof process.stdout.write);
  const err = t.mock.method(process.stderr, "write", (text: string | Uint8Array) => {
    told.err += text;
    return true;
  });
  try {
    const answer = await work();
    return { ...told, answer };
  } finally {
    out.mock.restore();
    err.mock.restore();
  }
}

import { syncBuiltinESMExports } from "node:module";
import type { TestContext } from "node:test";

/**
 * From now on, until the test ends or what this answers is called, a function of Node's file system fails with such an
 * error for one file, or for all without one. `module` is the default export of node:fs or node:fs/promises.
 */
export function failing<M extends object>(
  t: Pick<TestContext, "mock" | "after">,
  module: M,
  name: keyof M & string,
  code: string,
  file?: string,
): () => void {
  const original = module[name] as (...args: unknown[]) => unknown;
  const mock = t.mock.method(module as Record<string, typeof original>, name, (...args: unknown[]) => {
    if (file === undefined || args[0] === file) throw Object.assign(new Error(`${code}: ${name} was told to fail`), { code });
    return original.apply(module, args);
  });
  syncBuiltinESMExports();
  const mend = () => {
    mock.mock.restore();
    syncBuiltinESMExports();
  };
  t.after(mend);
  return mend;
}

let reached: (point: string) => void = () => {};

/**
 * Marks a moment at which a crash would leave something half done. It does nothing; tests that prove the recovery kill
 * the process there, each by its name.
 */
export function faultPoint(name: string): void {
  reached(name);
}

/** For tests: who is told of every point that is reached in this process. */
export function onFaultPoint(listener: (point: string) => void): void {
  reached = listener;
}

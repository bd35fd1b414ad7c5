const SAME_PRESS_MS = 250;

/** How a person asks a command to stop. */
export interface StopRequest extends Disposable {
  /** Aborted by the first INT, TERM or HUP. */
  signal: AbortSignal;
  /** Resolves at the second one: do not wait any longer. */
  insisted: Promise<void>;
}

/**
 * Listens for INT, TERM and HUP until it is disposed of. A terminal sends Ctrl-C to every process of the command, and
 * npm and the wrapper pass it on once more, so signals within a quarter of a second count as one. With `onHangUp`, HUP
 * does that instead of asking to stop.
 */
export function stopRequest(onHangUp?: () => void): StopRequest {
  const controller = new AbortController();
  const { promise: insisted, resolve: insist } = Promise.withResolvers<void>();
  let first = 0;
  const onSignal = () => {
    if (first === 0) {
      first = performance.now();
      controller.abort();
    } else if (performance.now() - first > SAME_PRESS_MS) insist();
  };
  const handlers = { SIGINT: onSignal, SIGTERM: onSignal, SIGHUP: onHangUp ?? onSignal };
  for (const [name, handler] of Object.entries(handlers)) process.on(name, handler);
  return {
    signal: controller.signal,
    insisted,
    [Symbol.dispose]() {
      for (const [name, handler] of Object.entries(handlers)) process.removeListener(name, handler);
    },
  };
}

// Loaded before each test file. node:test follows every promise and every handle to the test that made it, so that it can
// name the test whose error nobody caught. This following takes up to half of the processor time of a test that waits for
// much. Without it an uncaught error still fails its file. It is printed with its stack, but neither ends nor names the test.
import hooks from "node:async_hooks";
// As in the program: without it each test file needs half as much time again to load what it tests.
import "../lib/cli/imports.ts";

const { createHook } = hooks;
const unused = { enable: () => unused, disable: () => unused };

// The first hook of a process is that of node:test.
Object.assign(hooks, {
  createHook() {
    Object.assign(hooks, { createHook });
    // At once and with its stack: the report has one line of it, and only once the file ends.
    process.on("uncaughtExceptionMonitor", (error) => console.error(error));
    return unused;
  },
});

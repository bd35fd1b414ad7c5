// Loaded before each test file. node:test follows every promise and every handle to the test that made it, so that it can
// tell whose an error is that nobody caught. This takes up to half of the processor time of a test that waits for much.
// Without it such an error still fails its file, and the report names the error, but not the test.
import hooks from "node:async_hooks";

const { createHook } = hooks;
const unused = { enable: () => unused, disable: () => unused };

// The first hook of a process is that of node:test.
Object.assign(hooks, {
  createHook() {
    Object.assign(hooks, { createHook });
    return unused;
  },
});

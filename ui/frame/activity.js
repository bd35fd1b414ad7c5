/** Activity: the log of one run at a time, in the status bar and in the panel that opens from it (control-plane.md, UI). */
export const activity = {
  start({ onChange }) {},
  offer(bucketId, runId) {},
  show(bucketId, runId, line) {},
  clear() {},
  find() {
    return false;
  },
  toggle() {},
  fill() {},
  error(by) {},
  match(by) {},
  askForLine() {},
  goTo(_line) {},
  mount(host) {},
};

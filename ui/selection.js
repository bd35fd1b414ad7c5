import { all, bucketPath } from "./api.js";
import { el } from "./dom.js";
import { picker } from "./fields.js";
import { count } from "./format.js";

const FEW = 8;

/** A choice of workers, by name or by label; says how many that are. */
export function workerSelection(bucketId) {
  const note = el("p", { class: "hint", role: "status" });
  const labels = picker("Labels", () => chosen(labels, names));
  const names = picker("Workers", () => chosen(names, labels));
  const element = el("div", {}, el("div", { class: "row" }, labels.element, names.element), note);
  let workers = [];

  /** Names and labels exclude each other: the last choice counts. */
  function chosen(now, before) {
    if (now.values() !== undefined) before.clear();
    note.textContent = `Meant: ${text()}.`;
  }

  function meant() {
    const [wanted, tags] = [names.values(), labels.values()];
    if (wanted) return workers.filter(({ worker_ip }) => wanted.includes(worker_ip));
    if (tags) return workers.filter((one) => labelsOf(one).some((label) => tags.includes(label)));
    return workers;
  }

  function text() {
    const found = meant();
    const few = found.length <= FEW ? ` (${found.map(({ worker_ip }) => worker_ip).join(", ")})` : "";
    return `${found.length === workers.length ? "all " : ""}${count(found.length, "worker")}${few}`;
  }

  async function refresh() {
    try {
      workers = await all(bucketPath(bucketId, "/cat/workers?active=true"));
      names.offer(workers.map(({ worker_ip }) => worker_ip));
      labels.offer([...new Set(workers.flatMap(labelsOf))].sort());
      note.textContent = `Meant: ${text()}.`;
    } catch (error) {
      note.textContent = `The workers cannot be read: ${error.message}`;
    }
  }
  return { element, text, refresh, body: () => ({ workers: names.values(), labels: labels.values() }) };
}

function labelsOf({ labels }) {
  return (labels ?? "").split(",").filter((label) => label !== "");
}

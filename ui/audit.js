import { all } from "./api.js";
import { runLink } from "./controls.js";
import { words } from "./format.js";
import { listPart } from "./parts.js";

const MOST = 500;

/** Who did what. */
export function auditView({ bucketId, path }) {
  const read = async () => {
    const runs = await all(path(`/runs?limit=${MOST}`), MOST);
    return runs.flatMap(({ id, kind, audit }) =>
      audit.map(({ at, action, actor: { via, address } }) => ({ at, action, run: kind, via, address, id })),
    );
  };
  const list = listPart("", read, {
    caption: "Audit",
    columns: ["at", "action", "run", "via", "address", "id"],
    counted: /^(action|run|via|address)$/,
    cells: { run: ({ id, run }) => runLink(bucketId, id, words(run)) },
  });
  return { title: "Audit", parts: [list] };
}

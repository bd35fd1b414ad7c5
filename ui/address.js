/** The address of a view: `#/buckets/<id>/<view>/<rest>…?<query>`. Each part is encoded, so that any name can stand there. */
export function link(bucketId, view = "", rest = [], query = {}) {
  const path = ["buckets", bucketId, view, ...rest].filter((part) => part !== "").map(encodeURIComponent);
  const given = Object.entries(query).filter(
    ([, value]) => value !== "" && value !== null && value !== undefined,
  );
  const search = new URLSearchParams(given).toString();
  return `#/${path.join("/")}${search === "" ? "" : `?${search}`}`;
}

/** What the present address names; `bucketId` is undefined for the list of buckets, `known` false for no address of ours. */
export function address() {
  const [, path = "", search = ""] = /^#?\/?([^?]*)\??(.*)$/s.exec(location.hash) ?? [];
  const parts = path
    .split("/")
    .filter((part) => part !== "")
    .map(decode);
  const [first, bucketId, view = "", ...rest] = parts;
  const known = first === undefined || (first === "buckets" && bucketId !== undefined);
  return { known, bucketId, view, rest, query: new URLSearchParams(search) };
}

/** Changes the query of the present address without another entry in the history; an empty value leaves out the name. */
export function keepQuery(changes) {
  const { bucketId, view, rest, query } = address();
  const given = { ...Object.fromEntries(query), ...changes };
  history.replaceState(null, "", link(bucketId, view, rest, given));
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

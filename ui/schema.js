import { bucketPath, call } from "./api.js";
import { ask } from "./dialog.js";
import { button, facts } from "./dom.js";
import { part } from "./part.js";

/** The bucket's database: whether it is there, and how new its form is. */
export function schemaParts({ bucketId, nameOfBucket }) {
  const schema = part(
    "Database",
    () => call("GET", bucketPath(bucketId)),
    ({ initialized, schema_version }) =>
      facts([
        ["Initialised", initialized ? "yes" : "no: it has to be before anything can run"],
        ["Schema version", schema_version === null ? "none" : String(schema_version)],
      ]),
    { tools: [button("Initialise or upgrade", () => init())] },
  );

  async function init() {
    const says = [
      `Makes the database of ${nameOfBucket()} where there is none, else brings it to the form this server works with.`,
      "The bucket's id, its certificate authority and its keys stay. An older server cannot read an upgraded database.",
    ];
    const submit = () => call("POST", bucketPath(bucketId, "/init"), { body: {} });
    if (await ask({ title: "Initialise or upgrade", says, action: "Initialise or upgrade", submit }))
      schema.refresh();
  }
  return [schema];
}

import { buffer } from "node:stream/consumers";
import { Failure } from "../../core/errors.ts";
import { anything, list, object } from "../../core/shape.ts";
import type { CatalogAccess, Cells } from "../state/catalog-access.ts";
import { expectAnswer, namedAnswer, type Query, type RemoteBucket } from "./remote-bucket.ts";

const ITEMS = object({ items: list(anything()) });

/** The catalog and the key-value store of a bucket of a server, which reveals no secret. */
export function catalogOn(bucket: RemoteBucket): CatalogAccess {
  return {
    info: async () => ({ ...(await namedAnswer("BucketInfo", await bucket.get("/info"))) }),
    view: (name, query) => pagesOf(bucket, `/cat/${name}`, { ...query }),
    async key(namespace, key, isRevealed) {
      if (isRevealed) throw revealed();
      const { items } = await pagesOf(bucket, "/cat/kv", {});
      const entry = items.find((one) => one.namespace === namespace && one.key === key);
      if (!entry) return undefined;
      const { value = null, version = null, ttl = null, created_date = null } = entry;
      return { namespace, key, value, version, ttl, created_date };
    },
    prometheus: async (jobs) => (await pagesOf(bucket, "/prometheus", { jobs })).items,
    async prometheusFile(job, file) {
      // Says so where there is no such job.
      await bucket.get("/prometheus", { jobs: [job] });
      const parts = file.split("/");
      if (parts.some((part) => /^\.{0,2}$/.test(part))) return undefined;
      const place = bucket.path("/jobs", job.toLowerCase(), "files", "_prometheus", ...parts);
      return await buffer(bucket.client.stream("GET", place)).catch((error: unknown) => {
        if (error instanceof Failure && error.code === "file_not_found") return undefined;
        throw error;
      });
    },
    async scrape(jobs, isRevealed) {
      if (isRevealed) throw revealed();
      return expectAnswer(ITEMS, await bucket.get("/prometheus/scrape", { jobs })).items;
    },
    async changeSecret({ job, key, value, ttlSeconds: ttl }) {
      const place = job === null ? bucket.path("/secrets/notify", key) : bucket.path("/secrets/jobs", job, key);
      if (value === undefined) await bucket.client.call("DELETE", place);
      else await bucket.client.call("PUT", place, { json: { value, ttl } });
    },
  };
}

/** All rows of a view, and the names of their columns. */
async function pagesOf(bucket: RemoteBucket, path: string, query: Query): ReturnType<CatalogAccess["view"]> {
  const rows: Cells[] = [];
  for (let cursor: string | undefined; ; ) {
    const page = await namedAnswer("CatalogPage", await bucket.get(path, { ...query, cursor }));
    rows.push(...page.items);
    if (page.next_cursor === null) return { columns: page.columns, items: rows };
    cursor = page.next_cursor;
  }
}

function revealed(): Failure {
  return new Failure("usage", "--reveal: a server sends no secret back; use it where the bucket is");
}

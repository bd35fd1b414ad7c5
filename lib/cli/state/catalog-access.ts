import { bytesOf } from "../../bucket/base/contents.ts";
import type { Layout } from "../../bucket/base/layout.ts";
import type { CatalogJob } from "../../bucket/base/model.ts";
import { catalogFile, catalogJobs } from "../../bucket/catalog/catalog.ts";
import { jobsNamed } from "../../bucket/catalog/choices.ts";
import { bucketInfo } from "../../bucket/catalog/info.ts";
import { changeJobSecret, type JobSecret } from "../../bucket/catalog/job-secret.ts";
import { catalogView, type ViewName, type ViewQuery, viewSources } from "../../bucket/catalog/views.ts";
import { KvStore } from "../../bucket/kv/kv.ts";
import { isPrivateKey, isSealed, loadKvKey } from "../../bucket/kv/kv-access.ts";
import { uuidV7 } from "../../codec/uuid.ts";
import { takeBucket } from "../../run/recovery.ts";
import { openBucket } from "../../server/reading.ts";
import type { Cell } from "../base/terminal.ts";

/** An object of an answer, by the names of its columns. */
export type Cells = Readonly<Record<string, Cell>>;

/** What commands ask of the catalog and the key-value store of a bucket here or on a server. */
export interface CatalogAccess {
  /** What the bucket is and how much is in it. */
  info(): Promise<Cells>;
  /** Rows of the catalog, and the names of their columns in order. */
  view(name: ViewName, query: ViewQuery): Promise<{ columns: readonly string[]; items: readonly Cells[] }>;
  /** A key with its value; that of a secret only where it is to be revealed, that of a private key never. */
  key(namespace: string, key: string, isRevealed: boolean): Promise<Cells | undefined>;
  /** What each job has for Prometheus. */
  prometheus(jobs: readonly string[] | undefined): Promise<readonly Cells[]>;
  /** A file that a job has for Prometheus. */
  prometheusFile(job: string, file: string): Promise<Buffer | undefined>;
  /** What Prometheus has to scrape. */
  scrape(jobs: readonly string[] | undefined, isRevealed: boolean): Promise<unknown>;
  /** Stores a secret, or removes one without a value. */
  changeSecret(secret: JobSecret): Promise<void>;
}

const ALL_ROWS = 10_000_000;

/** Loaded when it is asked for, so that the other commands start fast. */
const prometheus = () => import("../../bucket/prometheus/scrape.ts");

/** The catalog and the key-value store of a bucket here. */
export function catalogHere(layout: Layout): CatalogAccess {
  return {
    async info() {
      using db = await openBucket(layout);
      return { ...bucketInfo(db) };
    },
    async view(name, query) {
      using db = await openBucket(layout);
      return catalogView(db, name, query, { limit: ALL_ROWS, ...(await viewSources(layout, name)) });
    },
    async key(namespace, key, isRevealed) {
      using db = await openBucket(layout);
      const kv = new KvStore(db, await loadKvKey(layout));
      const entry = kv.entry(namespace, key);
      if (!entry) return undefined;
      const isHidden = isPrivateKey(namespace, key) || (isSealed(namespace, key) && !isRevealed);
      const value = isHidden ? "[encrypted]" : (kv.get(namespace, key) ?? "");
      const { version, ttl, createdMs } = entry;
      return { namespace, key, value, version, ttl, created_date: new Date(createdMs).toISOString() };
    },
    async prometheus(jobs) {
      using db = await openBucket(layout);
      return (await prometheus()).prometheusRows(db, jobs);
    },
    async prometheusFile(job, file) {
      using db = await openBucket(layout);
      const [{ name }] = jobsNamed(catalogJobs(db), [job]) as [CatalogJob];
      const found = catalogFile(db, name, `_prometheus/${file}`);
      return found && bytesOf(found.content);
    },
    async scrape(jobs, reveal) {
      using db = await openBucket(layout);
      return (await prometheus()).scrapeConfigs(db, new KvStore(db, await loadKvKey(layout)), { jobs, reveal });
    },
    async changeSecret(secret) {
      await using _ = await takeBucket(layout, uuidV7(), secret.value === undefined ? "kv delete-secret" : "kv set-secret");
      await changeJobSecret(layout, secret);
    },
  };
}

import { createHash } from "node:crypto";
import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";
import { isKnown } from "../http/download.ts";
import { type Answer, type HttpRequest, raw } from "../http/message.ts";
import { requireReading } from "../http/router.ts";
import type { Asset } from "./console-files.ts";

/** How a text is compressed; the first one that the client takes is sent. */
const ENCODERS = {
  br: (text: Buffer) => promisify(brotliCompress)(text, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: text.length } }),
  gzip: (text: Buffer) => promisify(gzip)(text, { level: 9 }),
};
type Encoding = keyof typeof ENCODERS;

const ENCODINGS = Object.keys(ENCODERS) as Encoding[];

/** An asset with what was worked out for it. */
interface Served extends Asset {
  version: string;
  encoded: Partial<Record<Encoding, Buffer | undefined>>;
}

/**
 * The fixed files of the program, as they are sent: compressed where the client takes that, and with a version, so that a
 * browser gets only what it does not have.
 */
export class StaticFiles {
  readonly #files: ReadonlyMap<string, Served>;
  /** Takes a second of CPU, which a server that nobody looks at does not need. */
  #brotli: Promise<void> | undefined;

  constructor(assets: ReadonlyMap<string, Asset>) {
    const version = ({ content }: Asset) => createHash("sha256").update(content).digest("hex").slice(0, 32);
    const served = new Map([...assets.values()].map((asset) => [asset, { ...asset, version: version(asset), encoded: {} }]));
    this.#files = new Map([...assets].map(([path, asset]) => [path, served.get(asset) as Served]));
  }

  /**
   * Compresses all files, one after the other. Until then, and where memory is missing for it, a file is sent as it is or in
   * the other encoding.
   */
  async compress(encoding: Encoding): Promise<void> {
    for (const file of new Set(this.#files.values()))
      file.encoded[encoding] = await ENCODERS[encoding](file.content).catch(() => undefined);
  }

  /** True where a file has this path. */
  has(path: string): boolean {
    return this.#files.has(path);
  }

  /** The answer to a request for a file that is there. Throws `method_not_allowed` for anything but GET and HEAD. */
  answer(request: HttpRequest): Answer {
    requireReading(request);
    this.#brotli ??= this.compress("br");
    const { type, content, version, encoded } = this.#files.get(request.path) as Served;
    const encoding = takenEncoding(String(request.headers["accept-encoding"] ?? ""), encoded);
    const etag = `"${version}${encoding ? `-${encoding}` : ""}"`;
    const headers = { "Cache-Control": "no-cache", ETag: etag, Vary: "Accept-Encoding" };
    if (isKnown(String(request.headers["if-none-match"] ?? ""), etag)) return { status: 304, headers };
    if (!encoding) return raw(type, content, headers);
    return raw(type, encoded[encoding] as Buffer, { ...headers, "Content-Encoding": encoding });
  }
}

/** The encoding that a client takes (RFC 9110, Accept-Encoding), of those that are there. */
function takenEncoding(accepted: string, encoded: Served["encoded"]): Encoding | undefined {
  const weights = new Map<string, number>();
  for (const one of accepted.toLowerCase().split(",")) {
    const [name = "", weight = "q=1"] = one.split(";").map((part) => part.trim());
    weights.set(name, Number(weight.replace(/^q=/, "")));
  }
  return ENCODINGS.find((name) => encoded[name] && (weights.get(name) ?? weights.get("*") ?? 0) > 0);
}

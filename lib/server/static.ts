import { createHash } from "node:crypto";
import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";
import type { Asset } from "../core/self.ts";
import { isKnown } from "../http/download.ts";
import { type Answer, type HttpRequest, raw } from "../http/message.ts";
import { methodNotAllowed } from "../http/router.ts";

/** How a text is compressed; the first one that the client takes is sent. */
const ENCODERS = {
  br: (text: Buffer) =>
    promisify(brotliCompress)(text, {
      params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: text.length },
    }),
  gzip: (text: Buffer) => promisify(gzip)(text, { level: 9 }),
};
type Encoding = keyof typeof ENCODERS;

const ENCODINGS = Object.keys(ENCODERS) as Encoding[];

/** An asset with what was worked out for it. */
interface Served extends Asset {
  version: string;
  /** Only of texts: the other kinds are compressed already. */
  encoded: Partial<Record<Encoding, Promise<Buffer>>> | undefined;
}

/**
 * The fixed files of the program, as they are sent: compressed where the client takes that, and with a version, so that a
 * browser gets only what it does not have. Each file is compressed once, when it is asked for first.
 */
export class StaticFiles {
  readonly #files: ReadonlyMap<string, Served>;

  constructor(assets: ReadonlyMap<string, Asset>) {
    const served = (asset: Asset): Served => ({
      ...asset,
      version: createHash("sha256").update(asset.content).digest("hex").slice(0, 32),
      encoded: /^text\/|\+xml$/.test(asset.type) ? {} : undefined,
    });
    this.#files = new Map([...assets].map(([path, asset]) => [path, served(asset)]));
  }

  /** True where a file has this path. */
  has(path: string): boolean {
    return this.#files.has(path);
  }

  /** The answer to a request for a file that is there. Throws `method_not_allowed` for anything but GET and HEAD. */
  async answer(request: HttpRequest): Promise<Answer> {
    if (request.method !== "GET" && request.method !== "HEAD") throw methodNotAllowed(request, ["GET", "HEAD"]);
    const file = this.#files.get(request.path) as Served;
    const encoding = file.encoded && takenEncoding(String(request.headers["accept-encoding"] ?? ""));
    const etag = `"${file.version}${encoding ? `-${encoding}` : ""}"`;
    const headers = { "Cache-Control": "no-cache", ETag: etag, ...(file.encoded && { Vary: "Accept-Encoding" }) };
    if (isKnown(String(request.headers["if-none-match"] ?? ""), etag)) return { status: 304, headers };
    if (!file.encoded || !encoding) return raw(file.type, file.content, headers);
    file.encoded[encoding] ??= ENCODERS[encoding](file.content);
    return raw(file.type, await file.encoded[encoding], { ...headers, "Content-Encoding": encoding });
  }
}

/** The encoding that a client takes (RFC 9110, Accept-Encoding); undefined where it takes none of ours. */
function takenEncoding(accepted: string): Encoding | undefined {
  const weights = new Map<string, number>();
  for (const one of accepted.toLowerCase().split(",")) {
    const [name = "", weight = "q=1"] = one.split(";").map((part) => part.trim());
    weights.set(name, Number(weight.replace(/^q=/, "")));
  }
  return ENCODINGS.find((name) => (weights.get(name) ?? weights.get("*") ?? 0) > 0);
}

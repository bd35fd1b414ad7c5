import { type LookupAddress, type LookupAllOptions, lookup } from "node:dns";
import { type ClientRequest, request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import { isIP, type LookupFunction } from "node:net";
import { isLoopback, isPublic } from "../../codec/address.ts";

/** An answer that has not begun by then is none. */
const ANSWER_LIMIT_MS = 10_000;

/** Asks for all addresses of a name. */
export type LookupAll = (
  name: string,
  options: LookupAllOptions,
  done: (error: NodeJS.ErrnoException | null, found: LookupAddress[]) => void,
) => void;

/** What is posted. */
export interface Post {
  /** With `https:`, or with `http:`. */
  url: URL;
  method: "POST" | "PUT";
  headers: Readonly<Record<string, string>>;
  body: string;
  /** The address may be one of a private network, or of this host. */
  isPrivate: boolean;
}

/**
 * Sends a body; resolves once the answer is one of 200 to 299. Redirects are not followed, and the body of the answer is not
 * read. The very address that a name stands for is judged and then connected to: a private one only where the post says
 * so, and without TLS only one of this host. Throws a sentence that has nothing of the address.
 */
export async function sendPost(post: Post, signal: AbortSignal, lookUp: LookupAll = lookup): Promise<void> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_LIMIT_MS)]);
  const status = await answerTo(post, limit, lookUp).catch((error: unknown) => {
    if (error instanceof AddressError) throw error;
    // Messages of the system name hosts and addresses; a code does not.
    const { code = "no connection" } = error as NodeJS.ErrnoException;
    throw new Error(limit.aborted ? `there was no answer within ${ANSWER_LIMIT_MS / 1_000} s` : `it cannot be reached: ${code}`);
  });
  if (status >= 300 && status <= 399) throw new Error(`the answer is ${status}: redirects are not followed`);
  if (status < 200 || status > 299) throw new Error(`the answer is ${status}`);
}

class AddressError extends Error {}

function answerTo(post: Post, signal: AbortSignal, lookUp: LookupAll): Promise<number> {
  const { url, method, headers, body } = post;
  const problem = (address: string) => addressProblem(post, address);
  // A name that is an address is not looked up.
  const literal = url.hostname.replace(/^\[|\]$/g, "");
  const found = isIP(literal) === 0 ? undefined : problem(literal);
  if (found) return Promise.reject(found);
  const request = url.protocol === "https:" ? requestHttps : requestHttp;
  // An agent of its own: no connection is shared, and no proxy is asked.
  const options = { method, headers, signal, agent: false, lookup: judged(lookUp, problem) } as const;
  return new Promise((resolve, reject) => {
    const asked: ClientRequest = request(url, options, (response) => {
      resolve(response.statusCode ?? 0);
      response.on("error", () => {}).destroy();
    });
    asked.on("error", reject).end(body);
  });
}

/** A look-up that answers only addresses without a problem. */
function judged(lookUp: LookupAll, problem: (address: string) => Error | undefined): LookupFunction {
  return (name, options, done) => {
    lookUp(name, { ...options, all: true }, (error, found = []) => {
      if (error) return done(error, []);
      const [refusal] = found.flatMap(({ address }) => problem(address) ?? []);
      const good = found.filter(({ address }) => !problem(address));
      const [first] = good;
      if (!first) return done(refusal ?? new Error("no address"), []);
      if (options.all) done(null, good);
      else done(null, first.address, first.family);
    });
  };
}

function addressProblem({ url, isPrivate }: Post, address: string): AddressError | undefined {
  if (url.protocol === "http:" && !isLoopback(address))
    return new AddressError("its address is not of the server's own host: use https://");
  if (isPrivate || isPublic(address)) return undefined;
  return new AddressError('its address is of a private network or of the server\'s own host: it needs "private": true');
}

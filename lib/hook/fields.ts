import { Failure, type FailureCode, type Problem } from "../core/errors.ts";
import { check, isObject, object, type Shape } from "../core/shape.ts";
import { type HttpRequest, invalidRequest, readJsonBody } from "../http/message.ts";

/** hook-runtime.md, Errors: what the API says instead of the control plane's sentences. */
const SENTENCES: Partial<Record<FailureCode, string>> = {
  unsupported_media_type: "Content-Type must be application/json",
  invalid_request: "Invalid JSON format",
};

/**
 * Reads the fields of a request from its JSON body or, for GET without one, from the query, and checks them: first the
 * content type, then the JSON, then what is required. Names compare without case and `null` counts as missing, as
 * Go's JSON has it, for which scripts were written; an unknown field is a warning. Throws `payload_too_large`,
 * `unsupported_media_type` or `invalid_request`.
 */
export async function readFields(
  request: HttpRequest,
  { fields }: { fields: Record<string, Shape<unknown>> },
): Promise<{ given: Record<string, unknown>; warnings: Problem[] }> {
  const body = await bodyOf(request);
  const fromQuery = body === undefined && ["GET", "HEAD"].includes(request.method);
  const input = fromQuery ? Object.fromEntries(new URLSearchParams(request.query)) : (body ?? {});
  const checked = check(object(fields, { lenient: true, unknown: "warn" }), input);
  if (checked.ok) return { given: checked.value, warnings: checked.warnings };
  const isUnnamed = checked.problems.some(({ path }) => path === "namespace" || path === "key");
  if (isUnnamed && "key" in fields) throw new Failure("invalid_request", "Both namespace and key are required");
  throw invalidRequest(checked.problems);
}

async function bodyOf(request: HttpRequest): Promise<unknown> {
  try {
    const body = await readJsonBody(request);
    if (body === undefined || isObject(body)) return body;
    throw new Failure("invalid_request", "the body is not a JSON object");
  } catch (cause) {
    const sentence = cause instanceof Failure ? SENTENCES[cause.code] : undefined;
    throw sentence === undefined ? cause : new Failure((cause as Failure).code, sentence, { cause });
  }
}

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Identity } from "../../../lib/auth/guard.ts";
import type { Session } from "../../../lib/auth/session.ts";
import type { Answer, HttpRequest } from "../../../lib/http/message.ts";
import type { Context, ServerRoute } from "../../../lib/server/context.ts";
import { SESSION_ROUTES } from "../../../lib/server/people/sessions.ts";
import { AUTH_ROUTES } from "../../../lib/server/routes/auth.ts";

const [IDENTITY, LIST, END] = SESSION_ROUTES as [ServerRoute, ServerRoute, ServerRoute];
const [SIGN_IN, SHOW, SIGN_OUT, VERIFY] = AUTH_ROUTES as [ServerRoute, ServerRoute, ServerRoute, ServerRoute];
const ADA = { name: "ada", role: "read", token: "t1", via: "bearer", address: "192.0.2.1", totp: false } as Identity;

const session = (sid: string, token: string | undefined, name = "ada") =>
  ({ sid, token, name, address: "192.0.2.9", agent: "browser", iat: 1_000, exp: 3_000, lastUsed: 2_000 }) as Session;

/** What a route answers, with the body as a value. */
async function answerOf(route: ServerRoute, context: object, call: object = {}): Promise<Answer & { value?: never }> {
  const request = { id: "r", headers: {}, noted: {}, peer: "192.0.2.1" } as unknown as HttpRequest;
  const handle = route.handle as (call: object, context: Context) => Promise<Answer>;
  const answer = await handle({ params: {}, query: {}, body: {}, request, ...call }, context as Context);
  return { ...answer, ...(typeof answer.body === "string" && { value: JSON.parse(answer.body) as never }) };
}

test("CP-503 who one is is told with the role, the buckets and the end of the token", async () => {
  const access = { byId: (id: string) => (id === "t1" ? { expires_at: "2026-01-01T00:00:00.000Z" } : undefined) };
  const shown = { name: "ada", role: "read", buckets: null, via: "bearer", address: "192.0.2.1" };
  const asked = async (more: object) => (await answerOf(IDENTITY, { identity: { ...ADA, ...more }, access })).value;
  assert.deepEqual(await asked({}), { ...shown, expires_at: "2026-01-01T00:00:00.000Z" });
  assert.deepEqual(await asked({ token: undefined, buckets: ["b"] }), { ...shown, buckets: ["b"], expires_at: null });
  assert.deepEqual(await asked({ token: "gone" }), { ...shown, expires_at: null });
});

test("CP-504 one's own sessions are listed and ended, and those of others by root and admins of all buckets alone", async () => {
  const ended: string[] = [];
  const all = [session("s1", "t1"), session("s2", "t2", "bob"), session("s3", undefined, "root")];
  const sessions = { list: () => all, endById: (sid: string) => ended.push(sid) };
  const listed = async (identity: object) => {
    const { items } = ((await answerOf(LIST, { identity, sessions })).value ?? {}) as {
      items: { id: string; current: boolean }[];
    };
    return items.map(({ id, current }) => (current ? `${id}*` : id)).join(" ");
  };
  assert.equal(await listed({ ...ADA, session: all[0] }), "s1*");
  assert.equal(await listed({ ...ADA, role: "admin", session: all[1] }), "s1 s2* s3");
  assert.equal(await listed({ ...ADA, role: "admin", buckets: ["b"] }), "s1");
  assert.equal(await listed({ ...ADA, role: "deploy" }), "s1");
  assert.equal(await listed({ ...ADA, role: "root", token: undefined }), "s1 s2 s3");
  const [first] = ((await answerOf(LIST, { identity: ADA, sessions })).value as unknown as { items: object[] }).items;
  const at = (second: number) => `1970-01-01T00:00:0${second}.000Z`;
  const times = { created_at: at(1), expires_at: at(3), last_used_at: at(2) };
  assert.deepEqual(first, { id: "s1", name: "ada", address: "192.0.2.9", agent: "browser", ...times, current: false });
  const end = (identity: object, session_id: string) => answerOf(END, { identity, sessions }, { params: { session_id } });
  assert.equal((await end(ADA, "s1")).status, 204);
  assert.equal((await end({ ...ADA, role: "admin" }, "s2")).status, 204);
  for (const sid of ["s2", "s9", ""])
    await assert.rejects(end(ADA, sid), { code: "not_found", message: `there is no session ${JSON.stringify(sid)}` });
  assert.deepEqual(ended, ["s1", "s2"]);
});

/** What signing in and the second factor work with; `issued` gets the holders of new sessions. */
function signIn(more: object = {}) {
  const issued: object[] = [];
  const cookies = (name: string) => ({
    issue: (holder: object) => {
      issued.push(holder);
      return { session: { exp: 5_000 }, cookie: `${name}=1` };
    },
    end: () => `${name}=; Max-Age=0`,
    verify: () => ({ exp: 6_000 }),
  });
  const token = { id: "t1" };
  const access = {
    byId: (id: string) => (id === "t1" ? token : undefined),
    endOf: (one: object) => (one === token ? "end" : ""),
  };
  return { issued, context: { identity: ADA, sessions: cookies("s"), totpSessions: cookies("t"), access, ...more } };
}
const from = (agent?: string, headers: object = {}) => ({
  request: { id: "r", peer: "p", noted: {}, headers: { ...(agent !== undefined && { "user-agent": agent }), ...headers } },
});

test("signing in takes the token, and the session knows whose it is, from where and with which browser", async () => {
  const { issued, context } = signIn();
  const { status, headers, value } = await answerOf(SIGN_IN, context, from("Browser/1"));
  assert.deepEqual([status, headers?.["Set-Cookie"]], [200, "s=1"]);
  assert.deepEqual(value, {
    expires_at: "1970-01-01T00:00:05.000Z",
    totp: { enabled: false, verified: false },
    totp_expires_at: null,
    ...{ name: "ada", role: "read", buckets: null },
  });
  await answerOf(SIGN_IN, context, from(`é\n${"x".repeat(300)}`));
  await answerOf(SIGN_IN, { ...context, identity: { ...ADA, token: undefined, buckets: ["b"] } }, from());
  const holder = { name: "ada", token: "t1", ends: "end", address: "192.0.2.1" };
  assert.deepEqual(issued, [
    { ...holder, agent: "Browser/1" },
    { ...holder, agent: `??${"x".repeat(198)}` },
    { ...holder, token: undefined, ends: undefined, agent: "" },
  ]);
  const refused = answerOf(SIGN_IN, { ...context, identity: { ...ADA, via: "session" } }, from());
  await assert.rejects(refused, { code: "unauthorized", message: "signing in takes Authorization: Bearer <API token>" });
});

test("the session of a request is told with its end, and the one of its second factor", async () => {
  const { context } = signIn();
  const shown = async (more: object) => (await answerOf(SHOW, { ...context, identity: { ...ADA, ...more } }, from())).value;
  const told = { totp_expires_at: null, totp: { enabled: false, verified: false }, name: "ada", role: "read", buckets: null };
  assert.deepEqual(await shown({}), { ...told, expires_at: null });
  assert.deepEqual(await shown({ session: { exp: 7_000 }, totp: true, buckets: ["b"] }), {
    ...told,
    expires_at: "1970-01-01T00:00:07.000Z",
    totp: { enabled: true, verified: true },
    totp_expires_at: "1970-01-01T00:00:06.000Z",
    buckets: ["b"],
  });
});

test("signing out clears both cookies, also where the second factor is missing and the request is the console's own", async () => {
  const { context } = signIn();
  const cleared = ["s=; Max-Age=0", "t=; Max-Age=0"];
  const out = (more: object, headers: object = {}) =>
    answerOf(SIGN_OUT, { ...context, identity: { ...ADA, ...more } }, from("b", headers));
  for (const more of [{}, { codes: {}, totp: true }]) {
    const { status, headers, body } = await out(more);
    assert.deepEqual([status, headers?.["Set-Cookie"], body], [204, cleared, undefined]);
  }
  await assert.rejects(out({ codes: {} }), { code: "totp_required" });
  await assert.rejects(out({ codes: {} }, { origin: "http://elsewhere", host: "h", "x-ops-csrf": "1" }), {
    code: "totp_required",
  });
});

test("a code is proven once, and a wrong one is told and noted", async () => {
  const asked: unknown[] = [];
  const codes = { accept: (...given: unknown[]) => asked.push(given) === 1 };
  const { context, issued } = signIn({ identity: { ...ADA, codes } });
  const { status, headers, value } = await answerOf(VERIFY, context, { ...from("b"), body: { code: "1" } });
  assert.deepEqual([status, headers?.["Set-Cookie"], value], [200, "t=1", { expires_at: "1970-01-01T00:00:05.000Z" }]);
  const wrong = from("b");
  const refused = answerOf(VERIFY, context, { ...wrong, body: { code: "2" } });
  await assert.rejects(refused, { code: "invalid_totp_code", message: "the TOTP code is wrong, too old or was used before" });
  assert.deepEqual([wrong.request.noted, issued.length], [{ refused: "totp_wrong" }, 1]);
  await assert.rejects(answerOf(VERIFY, signIn().context, { ...from("b"), body: { code: "1" } }), { code: "invalid_totp_code" });
  assert.deepEqual(asked, [
    ["p", "1"],
    ["p", "2"],
  ]);
});

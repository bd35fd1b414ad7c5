import assert from "node:assert/strict";
import { test } from "node:test";
import type { Exchange } from "../../lib/http/listen.ts";
import { logExchange, logLine } from "../../lib/server/access.ts";

type Noted = Exchange["request"]["noted"];

/** What is logged of a request: the sentence, and the facts. */
function logged(path: string, noted: Noted, method = "GET"): [sentence: string, facts: object | undefined] {
  const lines: [string, object | undefined][] = [];
  const request = { id: "q1", method, path, peer: "::1", noted };
  logExchange((...line) => lines.push(line as [string, object]), { request, status: 200, bytes: 7, durationMs: 1.6 } as Exchange);
  assert.equal(lines.length, 1);
  return lines[0] as [string, object];
}

test("a request is logged in one line with its route, and who asked", () => {
  const noted = { route: "/api/runs/:id", authenticated: "bearer", name: "ada" } as Noted;
  assert.deepEqual(logged("/api/runs/7", noted), [
    "GET /api/runs/7 200 bytes=7 ms=2 auth=bearer name=ada route=/api/runs/:id peer=::1 request=q1",
    {
      ...{ request_id: "q1", peer: "::1", method: "GET", route: "/api/runs/:id", path: "/api/runs/7", status: 200 },
      ...{ size_bytes: 7, duration_ms: 2, authenticated: "bearer", name: "ada" },
    },
  ]);
  const [sentence, facts] = logged("/api/runs", { route: "/api/runs" } as Noted);
  assert.equal(sentence, "GET /api/runs 200 bytes=7 ms=2 auth=no peer=::1 request=q1");
  assert.ok(!("name" in (facts ?? {})));
});

test("the path of a request that no route takes is not shown, and why somebody was refused is", () => {
  const [sentence] = logged("/token", { refused: "wrong", authenticated: "bearer" } as Noted);
  assert.equal(sentence, "GET - 200 bytes=7 ms=2 auth=wrong peer=::1 request=q1");
});

test("what a terminal could obey is shown as question marks, and no more than 200 characters of a path", () => {
  const route = "/a" as const;
  const shown = (path: string, method?: string) =>
    logged(path, { route } as Noted, method)[0]
      .split(" ")
      .slice(0, 2);
  assert.deepEqual(shown("/\u001b[2J\u007f ~!é", "G\n"), ["G?", "/?[2J??~!?"]);
  assert.deepEqual(shown("x".repeat(201))[1], "x".repeat(200));
});

test("an entry of the log is a line with its time, as a sentence or as JSON", () => {
  const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/;
  const text = logLine("text", "it begins", { fact: 1 });
  assert.match(text, time);
  assert.equal(text.slice(24), " it begins\n");
  const { time: at, ...facts } = JSON.parse(logLine("json", "it begins", { fact: 1 }));
  assert.match(at, time);
  assert.deepEqual(facts, { fact: 1 });
  assert.equal(JSON.parse(logLine("json", "it begins")).message, "it begins");
  assert.ok(logLine("json", "it begins").endsWith("}\n"));
});

// The floors of `npm run bench -- http`: a server of node:http that does nothing but answer, at /large with 28 KB, at
// /wait never; at /floor it does what no server of an API can leave out: it compares a token, names the request, and sends security
// headers and 2 KB of JSON.
import { hash, randomUUID, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

const HEADERS = {
  "Content-Security-Policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
  "X-Frame-Options": "DENY",
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
  "Cache-Control": "no-store",
  "Content-Type": "application/json; charset=utf-8",
};
const ITEMS = Array.from({ length: 20 }, (_, number) => ({
  id: randomUUID(),
  kind: "build",
  status: "succeeded",
  exit_code: 0,
  number,
}));
const LARGE = "x".repeat(28 * 1024);
const expected = hash("sha256", "token", "buffer");

const server = createServer((request, response) => {
  if (request.url === "/") return void response.end("{}");
  if (request.url === "/large") return void response.end(LARGE);
  if (request.url === "/wait") return;
  timingSafeEqual(hash("sha256", request.headers.authorization ?? "", "buffer"), expected);
  const body = JSON.stringify({ items: ITEMS });
  const length = Buffer.byteLength(body);
  response.writeHead(200, { ...HEADERS, "Content-Length": length, "X-Request-Id": randomUUID() });
  response.end(body);
});
server.listen(0, "127.0.0.1", () => {
  process.stdout.write(`listening on http://127.0.0.1:${(server.address() as AddressInfo).port}\n`);
});

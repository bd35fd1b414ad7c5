// The floor of `npm run bench -- http`: a server of node:http that does nothing but answer.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

const server = createServer((_, response) => response.end("{}"));
server.listen(0, "127.0.0.1", () => {
  process.stdout.write(`listening on http://127.0.0.1:${(server.address() as AddressInfo).port}\n`);
});

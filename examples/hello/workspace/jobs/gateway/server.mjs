// Answers GET / with the answers of all hello services (502 when one is missing) and GET /health with the
// configuration it runs on.
//   node server.mjs        serves until SIGTERM; SIGHUP reads config.json again
//   node server.mjs probe  exit code 0 when a server answers that runs on this very config.json
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import process from "node:process";

const PATIENCE_MS = 2_000;

let config = readConfig();
if (process.argv[2] === "probe") await probe();
else serve();

function readConfig() {
  return JSON.parse(readFileSync(new URL("config.json", import.meta.url), "utf8"));
}

async function probe() {
  try {
    const url = `http://${config.worker}:${config.port}/health`;
    const response = await fetch(url, { signal: AbortSignal.timeout(PATIENCE_MS) });
    process.exitCode = (await response.text()) === JSON.stringify(config) ? 0 : 1;
  } catch {
    process.exitCode = 1;
  }
}

function serve() {
  const server = createServer(async (request, response) => {
    const { status, body } = await answer(request.url);
    response.writeHead(status, { "Content-Type": "application/json" });
    response.end(JSON.stringify(body));
  });
  const address = `${config.worker}:${config.port}`;
  server.on("error", (error) => {
    console.error(`cannot listen on ${address}: ${error.message}`);
    process.exitCode = 1;
  });
  server.listen(config.port, config.worker, () => console.log(`listening on ${address}`));
  process.on("SIGHUP", reload);
  process.on("SIGTERM", () => {
    server.close();
    server.closeAllConnections();
  });
}

async function answer(url) {
  if (url === "/health") return { status: 200, body: config };
  if (url !== "/") return { status: 404, body: { error: "not found" } };
  const peers = await Promise.all(config.peers.map(ask));
  const { job, version, worker } = config;
  return { status: peers.some((peer) => peer.error) ? 502 : 200, body: { job, version, worker, peers } };
}

async function ask(peer) {
  try {
    const response = await fetch(`${peer}/`, { signal: AbortSignal.timeout(PATIENCE_MS) });
    if (!response.ok) throw new Error(`status ${response.status}`);
    return { peer, answer: await response.json() };
  } catch (error) {
    return { peer, error: error.message };
  }
}

function reload() {
  try {
    config = readConfig();
    console.log(`runs on version ${config.version} now`);
  } catch (error) {
    console.error(`config.json cannot be used, the old configuration stays: ${error.message}`);
  }
}

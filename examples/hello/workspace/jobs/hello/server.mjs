// Answers GET / with who it is, GET /health with the configuration it runs on, and GET /metrics for a Prometheus.
//   node server.mjs        serves until SIGTERM; SIGHUP reads config.json again
//   node server.mjs probe  exit code 0 when a server answers that runs on this very config.json
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import process from "node:process";

let config = readConfig();
if (process.argv[2] === "probe") await probe();
else serve();

function readConfig() {
  return JSON.parse(readFileSync(new URL("config.json", import.meta.url), "utf8"));
}

async function probe() {
  try {
    const url = `http://${config.worker}:${config.port}/health`;
    const response = await fetch(url, { signal: AbortSignal.timeout(2_000) });
    process.exitCode = (await response.text()) === JSON.stringify(config) ? 0 : 1;
  } catch {
    process.exitCode = 1;
  }
}

function serve() {
  let answered = 0;
  const server = createServer((request, response) => {
    answered += 1;
    if (request.url === "/metrics") {
      response.writeHead(200, { "Content-Type": "text/plain; version=0.0.4" });
      return response.end(`# TYPE hello_requests_total counter\nhello_requests_total ${answered}\n`);
    }
    const answer = { "/": hello, "/health": () => config }[request.url];
    response.writeHead(answer ? 200 : 404, { "Content-Type": "application/json" });
    response.end(JSON.stringify(answer?.() ?? { error: "not found" }));
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

function hello() {
  const { greeting, job, version, worker, peers } = config;
  return { greeting, job, version, worker, peers, uptime_s: Math.round(process.uptime()) };
}

function reload() {
  try {
    config = readConfig();
    console.log(`runs on version ${config.version} now`);
  } catch (error) {
    console.error(`config.json cannot be used, the old configuration stays: ${error.message}`);
  }
}

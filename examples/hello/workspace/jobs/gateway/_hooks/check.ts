// Prints what the service on this allocation's worker answers.
import * as ops from "./ops.ts";

const port = await ops.getStoreValue("ops/bucket", "gateway_http");
port.raiseForStatus();
const response = await fetch(`http://${ops.allocationIp()}:${port.json().value}/`, { signal: AbortSignal.timeout(5_000) });
console.log(JSON.stringify(await response.json(), null, 2));

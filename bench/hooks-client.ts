// Asks one server after the other, round after round, as a script does; prints the times of each in milliseconds.
import { once } from "node:events";
import { Agent, request as httpRequest, type IncomingMessage } from "node:http";

/** What is asked: of which server, over a connection that is kept or a new one. */
export interface Question {
  name: string;
  host: string;
  port: number;
  isKept: boolean;
  method: string;
  path: string;
  body?: object;
}

/** What the client is started with. */
export interface Questions {
  rounds: number;
  headers: Record<string, string>;
  questions: Question[];
}

const { rounds, headers, questions }: Questions = JSON.parse(process.argv[2] as string);
const agent = new Agent({ keepAlive: true });
const times: Record<string, number[]> = {};
for (let round = -10; round < rounds; round++)
  for (const question of questions) {
    const started = performance.now();
    await ask(question);
    if (round < 0) times[question.name] = [];
    else times[question.name]?.push(performance.now() - started);
  }
agent.destroy();
console.log(JSON.stringify(times));

async function ask({ host, port, isKept, method, path, body }: Question): Promise<void> {
  const request = httpRequest({ host, port, method, path, headers, agent: isKept ? agent : false });
  request.end(body && JSON.stringify(body));
  const [response] = (await once(request, "response")) as [IncomingMessage];
  await response.toArray();
  if (response.statusCode !== 200) throw new Error(`${method} ${path} answered ${response.statusCode}`);
}

import path from "node:path";
import type { WorkerAddress } from "../base/transport.ts";
import { jumpOf, type SshSettings } from "./argv.ts";

/** Why a connection could not be opened. */
export interface Trouble {
  /** One sentence: which worker, what happened, what to do. */
  sentence: string;
  /** For how long it is worth trying again; 0 for what only a person can change. */
  retryMs: number;
}

interface Kind {
  pattern: RegExp;
  retryMs: number;
  describe: (found: RegExpExecArray, about: About) => string;
}

/** The names that sentences are made of. */
interface About {
  /** `worker 10.0.0.7`, or the jump host before it. */
  place: string;
  worker: string;
  user: string;
  port: number;
  key: string;
}

/** A server drops connections when it has too many to answer, or the network lost one. */
const TRANSIENT_MS = 15_000;
/** A server that is just being started again. */
const REFUSED_MS = 3_000;

/** What ssh says, the first that fits counts: behind a jump host several of them come together. */
const KINDS: readonly Kind[] = [
  {
    pattern: /REMOTE HOST IDENTIFICATION HAS CHANGED/,
    retryMs: 0,
    describe: (_, { place }) =>
      `Refused to connect to ${place}: it shows another host key than the one that is trusted; if that is right, trust the new one: \`ops worker trust --force\``,
  },
  {
    pattern: /Host key verification failed|No \S+ host key is known/,
    retryMs: 0,
    describe: (_, { place }) =>
      `Cannot connect to ${place}: its host key is not known; check and record it: \`ops worker trust\``,
  },
  {
    pattern: /Load key .*?: (.+)/,
    retryMs: 0,
    describe: ([, why], { place, key }) =>
      `Cannot sign in on ${place}: ssh cannot use the private key secrets/${key}: ${why}`,
  },
  {
    pattern: /Permission denied|Too many authentication failures/,
    retryMs: 0,
    describe: (_, { place, user, key }) =>
      `Cannot sign in on ${place} as ${user}: it does not accept the key secrets/${key}; put its public part into that user's authorized_keys, or upload the right key`,
  },
  {
    pattern: /Unable to negotiate .*?: (no matching .+? found)|(Bad (?:SSH2 )?\S+ '.+?')/,
    retryMs: 0,
    describe: ([, none, bad], { place }) => `Cannot connect to ${place}: ${none ?? bad}; see ssh_options in ops.conf`,
  },
  {
    pattern: /Could not resolve hostname (\S+): (.+)/,
    retryMs: 0,
    describe: ([, host, why], { place }) => `Cannot connect to ${place}: the name ${host} has no address: ${why}`,
  },
  {
    pattern: /open failed: (?:connect failed: )?(.+)/,
    retryMs: 0,
    describe: ([, why], { worker, port }) =>
      `Cannot connect to worker ${worker}: its jump host does not get to port ${port} there: ${why}`,
  },
  {
    pattern: /connect to host \S+ port (\d+): Connection refused/,
    retryMs: REFUSED_MS,
    describe: ([, port], { place }) =>
      `Cannot connect to ${place}: nothing listens on port ${port} there; is sshd running, and is ssh_port right?`,
  },
  {
    pattern: /timed out during banner exchange|the login timed out|Connection to \S+ port \d+ timed out/,
    retryMs: TRANSIENT_MS,
    describe: (_, { place, port }) =>
      `Cannot sign in on ${place}: port ${port} accepts the connection, but the login hangs; does its sshd hang, or is the host out of memory or processes?`,
  },
  {
    pattern: /timed out/,
    retryMs: TRANSIENT_MS,
    describe: (_, { place, port }) =>
      `Cannot connect to ${place}: no answer on port ${port} in time; is it up, and does the network let ssh through?`,
  },
  {
    pattern: /Connection (?:closed|reset)|Broken pipe/,
    retryMs: TRANSIENT_MS,
    describe: (_, { place }) =>
      `Cannot connect to ${place}: it drops the connection before the login is done; its sshd may have too many logins at a time (MaxStartups) or has blocked this machine`,
  },
  {
    pattern: /connect to host \S+ port \d+: (.+)/,
    retryMs: 0,
    describe: ([, why], { place }) => `Cannot connect to ${place}: ${why}`,
  },
];

/** What the messages of an ssh that could not connect mean. */
export function explain(messages: string, worker: WorkerAddress, settings: SshSettings): Trouble {
  const about = aboutOf(messages, worker, settings);
  for (const { pattern, retryMs, describe } of KINDS) {
    const found = pattern.exec(messages);
    if (found) return { sentence: describe(found, about), retryMs };
  }
  const last = lastLine(messages) || "ssh ended without a word";
  return { sentence: `Cannot connect to ${about.place}: ${last}`, retryMs: 0 };
}

/** Behind a jump host, the messages are about it when they name it and not the worker. */
function aboutOf(messages: string, worker: WorkerAddress, settings: SshSettings): About {
  const jump = jumpOf(worker, settings);
  const key = path.basename(settings.keyFile);
  if (jump && messages.includes(jump.host) && !messages.includes(worker.host)) {
    const place = `the jump host ${jump.host} of worker ${worker.host}`;
    return { place, worker: worker.host, user: jump.user, port: jump.port, key };
  }
  const { host, sshUser = settings.user, sshPort = settings.port } = worker;
  return { place: `worker ${host}`, worker: host, user: sshUser, port: sshPort, key };
}

/** The last line that says something, without a period. */
export function lastLine(text: string): string {
  return (text.trim().split("\n").at(-1) ?? "").trim().replace(/\.$/, "");
}

import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { TestContext } from "node:test";
import { openssl } from "./openssl.ts";
import { temporaryFolder } from "./temporary.ts";

/** The authority of the earlier system, as that makes its own: RSA, and what it issues has neither uses nor all names. */
export class EarlierAuthority {
  readonly #folder: string;
  readonly certificate: string;
  readonly key: string;

  constructor(t: TestContext) {
    this.#folder = temporaryFolder(t);
    const subject = ["-subj", "/CN=maand", "-days", "3650", "-addext", "basicConstraints=critical,CA:true"];
    const files = ["-keyout", this.#file("ca.key"), "-out", this.#file("ca.crt")];
    openssl(["req", "-x509", "-newkey", "rsa:2048", "-nodes", ...subject, ...files]);
    this.certificate = readFileSync(this.#file("ca.crt"), "utf8");
    this.key = readFileSync(this.#file("ca.key"), "utf8");
  }

  /** A pair for these names, as openssl writes them: `IP:…` and `DNS:…`. */
  issue(commonName: string, names: string): { certificate: string; key: string } {
    const [request, end] = [this.#file("request"), this.#file("extensions")];
    const key = openssl(["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]);
    writeFileSync(this.#file("key"), key);
    writeFileSync(end, `subjectAltName=${names}\n`);
    openssl(["req", "-new", "-key", this.#file("key"), "-subj", `/CN=${commonName}`, "-out", request]);
    const by = ["-CA", this.#file("ca.crt"), "-CAkey", this.#file("ca.key"), "-CAcreateserial"];
    const certificate = openssl(["x509", "-req", "-in", request, ...by, "-days", "30", "-extfile", end]);
    return { certificate, key };
  }

  /** Puts a pair of this authority, and its own certificate, into the folder of a job. */
  put(folder: string, name: string, pair: { certificate: string; key: string }): void {
    const certs = path.join(folder, "certs");
    mkdirSync(certs, { recursive: true });
    writeFileSync(path.join(certs, "ca.crt"), this.certificate);
    writeFileSync(path.join(certs, `${name}.crt`), pair.certificate);
    writeFileSync(path.join(certs, `${name}.key`), pair.key);
    chmodSync(path.join(certs, `${name}.key`), 0o600);
  }

  #file(name: string): string {
    return path.join(this.#folder, name);
  }
}

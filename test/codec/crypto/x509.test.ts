import assert from "node:assert/strict";
import { createPrivateKey, generateKeyPairSync, type KeyObject, X509Certificate } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { type ConnectionOptions, connect, createServer, type TlsOptions } from "node:tls";
import { issuerOf, type LeafRequest, leaf, selfSigned } from "../../../lib/codec/crypto/x509.ts";
import { openssl, textOf, verify } from "../../helpers/openssl.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const DAY_MS = 86_400_000;
const VALIDITY = { notBefore: new Date(Date.now() - 300_000), notAfter: new Date(Date.now() + DAY_MS) };
const ALT_NAMES = ["127.0.0.1", "localhost", "10.0.0.1", "fd00::1:2", "*.db.example"];

interface Pair {
  certificate: string;
  privateKey: KeyObject;
}

async function makeAuthority(): Promise<Pair> {
  const keys = generateKeyPairSync("ec", { namedCurve: "P-384" });
  return { certificate: await selfSigned("bucket-1", keys, VALIDITY), privateKey: keys.privateKey };
}

async function makeLeaf(
  { certificate, privateKey }: Pair,
  request: Partial<LeafRequest> = {},
  keys = generateKeyPairSync("ec", { namedCurve: "P-256" }),
): Promise<Pair> {
  const issuer = issuerOf(new X509Certificate(certificate), privateKey);
  const { publicKey } = keys;
  const all = { commonName: "web", altNames: ALT_NAMES, publicKey, validity: VALIDITY, ...request };
  return { certificate: await leaf(all, issuer), privateKey: keys.privateKey };
}

test("an authority may issue certificates of services and nothing else", async (t) => {
  const { certificate } = await makeAuthority();
  verify(t, certificate, certificate);
  const text = textOf(certificate);
  for (const part of [
    "Version: 3 (0x2)",
    "Signature Algorithm: ecdsa-with-SHA384",
    "Issuer: CN = bucket-1",
    "Subject: CN = bucket-1",
    "ASN1 OID: secp384r1",
    "X509v3 Basic Constraints: critical CA:TRUE, pathlen:0",
    "X509v3 Key Usage: critical Certificate Sign, CRL Sign",
    "X509v3 Subject Key Identifier:",
  ])
    assert.ok(text.includes(part), `${part}: ${text}`);
});

test("a certificate of a service is for servers and clients, by address and by name, and passes strict checks", async (t) => {
  const authority = await makeAuthority();
  const ec = await makeLeaf(authority);
  const rsa = await makeLeaf(authority, {}, generateKeyPairSync("rsa", { modulusLength: 2048 }));
  for (const { certificate } of [ec, rsa]) {
    for (const purpose of ["sslserver", "sslclient"]) verify(t, authority.certificate, certificate, "-purpose", purpose);
    for (const ip of ["127.0.0.1", "10.0.0.1", "fd00::1:2"]) verify(t, authority.certificate, certificate, "-verify_ip", ip);
    for (const name of ["localhost", "one.db.example"]) verify(t, authority.certificate, certificate, "-verify_hostname", name);
    assert.throws(() => verify(t, authority.certificate, certificate, "-verify_ip", "10.0.0.2"), /mismatch/);
    const text = textOf(certificate);
    for (const part of [
      "Issuer: CN = bucket-1",
      "Subject: CN = web",
      "X509v3 Basic Constraints: critical CA:FALSE",
      "X509v3 Extended Key Usage: TLS Web Server Authentication, TLS Web Client Authentication",
      "IP Address:127.0.0.1, DNS:localhost, IP Address:10.0.0.1, IP Address:FD00:0:0:0:0:0:1:2, DNS:*.db.example",
      "X509v3 Subject Key Identifier:",
    ])
      assert.ok(text.includes(part), `${part}: ${text}`);
    const [, own] = /Authority Key Identifier: ([0-9A-F:]+)/.exec(text) ?? [];
    assert.ok(own && textOf(authority.certificate).includes(`Subject Key Identifier: ${own}`));
  }
  assert.match(textOf(ec.certificate), /Key Usage: critical Digital Signature X509v3/);
  assert.match(textOf(rsa.certificate), /Key Usage: critical Digital Signature, Key Encipherment X509v3/);
});

test("serial numbers are positive numbers of 128 bits and differ", async () => {
  const authority = await makeAuthority();
  const serials = new Set<string>();
  for (let round = 0; round < 50; round++) {
    const { serialNumber } = new X509Certificate((await makeLeaf(authority)).certificate);
    assert.match(serialNumber, /^[4-7][0-9A-F]{31}$/);
    serials.add(serialNumber);
  }
  assert.equal(serials.size, 50);
});

test("times go by the rule for the year 2050, and to the second", async () => {
  const authority = await makeAuthority();
  for (const [end, kind] of [
    ["2049-12-31T23:59:59.000Z", "UTCTIME :491231235959Z"],
    ["2050-01-01T00:00:00.000Z", "GENERALIZEDTIME :20500101000000Z"],
  ] as const) {
    const validity = { notBefore: new Date("2026-02-03T04:05:06.789Z"), notAfter: new Date(end) };
    const { certificate } = await makeLeaf(authority, { validity });
    const parsed = openssl(["asn1parse"], certificate).replace(/ +/g, " ");
    assert.ok(parsed.includes("UTCTIME :260203040506Z") && parsed.includes(kind), parsed);
    assert.equal(new X509Certificate(certificate).validToDate.toISOString(), end);
  }
});

test("addresses of every form become their bytes", async () => {
  const authority = await makeAuthority();
  for (const [address, shown] of [
    ["::", "0:0:0:0:0:0:0:0"],
    ["::1", "0:0:0:0:0:0:0:1"],
    ["fe80::", "FE80:0:0:0:0:0:0:0"],
    ["2001:db8:1:2:3:4:5:6", "2001:DB8:1:2:3:4:5:6"],
    ["2001:0DB8::00a:0", "2001:DB8:0:0:0:0:A:0"],
    ["::ffff:1.2.3.4", "0:0:0:0:0:FFFF:102:304"],
    ["255.0.1.2", "255.0.1.2"],
  ] as const) {
    const { certificate } = await makeLeaf(authority, { altNames: [address] });
    assert.equal(new X509Certificate(certificate).subjectAltName, `IP Address:${shown}`);
  }
});

test("text of any script is a common name", async (t) => {
  const authority = await makeAuthority();
  const { certificate } = await makeLeaf(authority, { commonName: 'Büro 東京, "x"' });
  verify(t, authority.certificate, certificate);
  const subject = openssl(["x509", "-noout", "-subject", "-nameopt", "utf8,sep_multiline"], certificate);
  assert.match(subject, /CN=Büro 東京, "x"/);
});

test("authorities that others made issue certificates that pass strict checks, whatever their key and name", async (t) => {
  const folder = temporaryFolder(t);
  const plain = ["-addext", "keyUsage=critical,keyCertSign", "-addext", "basicConstraints=critical,CA:TRUE"];
  for (const [name, key] of Object.entries({
    rsa: ["-newkey", "rsa:2048"],
    p256: ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
    p384: ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384"],
  })) {
    const [keyFile, file] = [path.join(folder, `${name}.key`), path.join(folder, `${name}.crt`)];
    const subject = ["-subj", "/C=CH/O=Example & Co/CN=Root", "-days", "30"];
    openssl(["req", "-x509", "-nodes", ...key, ...subject, ...plain, "-keyout", keyFile, "-out", file]);
    const certificate = readFileSync(file, "utf8");
    const authority = { certificate, privateKey: createPrivateKey(readFileSync(keyFile)) };
    verify(t, certificate, (await makeLeaf(authority)).certificate);
  }
  const { privateKey } = generateKeyPairSync("ed25519");
  const { certificate } = await makeAuthority();
  assert.throws(() => issuerOf(new X509Certificate(certificate), privateKey), /its key is ed25519; it must be/);
});

/** Serves one handshake and answers how it went for the client. */
async function handshake(t: TestContext, server: TlsOptions, client: ConnectionOptions): Promise<string> {
  const listener = createServer(server, (socket) => socket.on("error", () => {}).end("hello"));
  listener.on("tlsClientError", () => {}).listen(0, client.host ?? "127.0.0.1");
  await once(listener, "listening");
  t.after(() => listener.close());
  const socket = connect({ port: (listener.address() as AddressInfo).port, ...client });
  try {
    let text = "";
    for await (const chunk of socket) text += chunk;
    return text;
  } catch (error) {
    return String((error as NodeJS.ErrnoException).code);
  } finally {
    socket.destroy();
  }
}

test("a TLS client that trusts the authority alone accepts the service by address and by name, and nobody else", async (t) => {
  const [authority, stranger] = [await makeAuthority(), await makeAuthority()];
  const altNames = ["127.0.0.1", "localhost", "::1"];
  const keyPairs = [generateKeyPairSync("ec", { namedCurve: "P-256" }), generateKeyPairSync("rsa", { modulusLength: 2048 })];
  for (const keys of keyPairs)
    for (const minVersion of ["TLSv1.2", "TLSv1.3"] as const) {
      const { certificate, privateKey } = await makeLeaf(authority, { altNames }, keys);
      const key = privateKey.export({ type: "pkcs8", format: "pem" });
      const server = { cert: certificate, key, minVersion, maxVersion: minVersion };
      const ca = authority.certificate;
      assert.equal(await handshake(t, server, { host: "127.0.0.1", ca }), "hello");
      assert.equal(await handshake(t, server, { host: "::1", ca }), "hello");
      assert.equal(await handshake(t, server, { host: "127.0.0.1", servername: "localhost", ca }), "hello");
      assert.equal(
        await handshake(t, server, { host: "127.0.0.1", servername: "other.example", ca }),
        "ERR_TLS_CERT_ALTNAME_INVALID",
      );
      assert.equal(
        await handshake(t, server, { host: "127.0.0.1", ca: stranger.certificate }),
        "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
      );
    }
});

test("with mutual TLS a certificate serves as the client's, and a client without one is refused", async (t) => {
  const authority = await makeAuthority();
  const [one, two] = [await makeLeaf(authority), await makeLeaf(authority, { commonName: "client" })];
  const [key, clientKey] = [one, two].map((pair) => pair.privateKey.export({ type: "sec1", format: "pem" }));
  const ca = authority.certificate;
  const server = { cert: one.certificate, key: key as string, ca, requestCert: true, rejectUnauthorized: true };
  const client = { host: "127.0.0.1", ca };
  assert.equal(await handshake(t, server, { ...client, cert: two.certificate, key: clientKey as string }), "hello");
  assert.notEqual(await handshake(t, server, client), "hello");
});

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { serviceUnit, settingsOfUnit } from "../../../lib/cli/server/unit.ts";
import { PROGRAM_ROOT } from "../../../lib/core/self.ts";
import { LocalServer } from "../../../scripts/local-server.ts";
import { ops } from "../../helpers/command-line.ts";
import { certificateFor } from "../../helpers/http.ts";
import { mayMount, onMachine } from "../../helpers/machine.ts";
import { temporaryFolder, until, writeFiles } from "../../helpers/temporary.ts";

const PROGRAM = ["/opt/ops/node", "/opt/ops/bin/ops.js"];

test("the unit passes systemd's own checks, and is as closed as the program lets it be", (t) => {
  const folder = temporaryFolder(t);
  const file = path.join(folder, "ops.service");
  const { certFile, keyFile } = { certFile: "/etc/ops/a b.pem", keyFile: "/etc/ops/key.pem" };
  const settings = {
    user: "root",
    root: "/srv/ops",
    "tls-cert": certFile,
    "tls-key": keyFile,
    "totp-secret-file": "/etc/ops/totp",
  };
  writeFileSync(file, serviceUnit(settings, [process.execPath, path.join(PROGRAM_ROOT, "bin", "ops.js")]));
  const analyze = (...args: string[]) => spawnSync("systemd-analyze", [...args, file], { encoding: "utf8" });
  const verified = analyze("verify", "--man=no");
  assert.deepEqual([verified.status, verified.stderr], [0, ""]);
  writeFileSync(file, serviceUnit({}, PROGRAM));
  // From 0, closed, to 10, open.
  const { status, stdout } = analyze("security", "--offline=true", "--no-pager", "--threshold=20");
  assert.equal(status, 0, stdout);
});

test("the unit names program, root and flags, and hands over the secrets as credentials", () => {
  const plain = serviceUnit({}, PROGRAM);
  const start = "ExecStart=/opt/ops/node /opt/ops/bin/ops.js server --root";
  assert.ok(plain.includes(`${start} /var/lib/ops --token-file \${CREDENTIALS_DIRECTORY}/token\n`), plain);
  assert.match(plain, /^LoadCredential=token:\/etc\/ops\/token$/m);
  assert.match(plain, /^ProtectHome=yes$/m);
  assert.doesNotMatch(plain, /ReadWritePaths|totp|ExecReload/);
  const settings = { root: "/home/a b", addr: ":9090", "tls-cert": "/c", "tls-key": "/k", "totp-secret-file": "/t", user: "me" };
  const full = serviceUnit(settings, PROGRAM);
  assert.ok(full.includes(`${start} "/home/a b" --addr :9090 --tls-cert /c --tls-key /k --token-file`), full);
  assert.match(full, / --totp-secret-file \$\{CREDENTIALS_DIRECTORY\}\/totp$/m);
  for (const line of ["User=me", "LoadCredential=totp:/t", 'ReadWritePaths="/home/a b"', "ProtectHome=read-only"])
    assert.ok(full.includes(`${line}\n`), line);
  assert.deepEqual({ ...settingsOfUnit(full) }, settings);
});

test("CP-661 with a user of hooks the unit is root's, with what it takes to run commands as that user, and no more", (t) => {
  const settings = { "hook-user": "hooks", addr: ":80" };
  const unit = serviceUnit(settings, PROGRAM);
  for (const line of [
    "User=root",
    "CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_KILL CAP_SETGID CAP_SETPCAP CAP_SETUID",
    "SystemCallFilter=~@privileged @resources\nSystemCallFilter=@chown @setuid capset",
    "NoNewPrivileges=yes",
  ])
    assert.ok(unit.includes(`${line}\n`), line);
  assert.match(unit, /^ExecStart=.* --hook-user hooks /m);
  assert.deepEqual({ ...settingsOfUnit(unit) }, settings);
  assert.match(
    serviceUnit({}, PROGRAM),
    /^CapabilityBoundingSet=\n(?:.*\n)*SystemCallFilter=~@privileged @resources\nSystemCallErrorNumber/m,
  );
  const file = path.join(temporaryFolder(t), "ops.service");
  writeFileSync(file, serviceUnit(settings, [process.execPath, path.join(PROGRAM_ROOT, "bin", "ops.js")]));
  const verified = spawnSync("systemd-analyze", ["verify", "--man=no", file], { encoding: "utf8" });
  assert.deepEqual([verified.status, verified.stderr], [0, ""]);
  assert.throws(() => serviceUnit({ ...settings, user: "ops" }, PROGRAM), { code: "usage", message: /leave --user out/ });
});

test("CP-661 an installation with a user of hooks makes that user, and leaves it", { skip: !mayMount }, () => {
  const out = onMachine(`ops server install --hook-user hooks; getent passwd hooks | cut -d: -f 6,7; look /var/lib/ops
     ops server uninstall | tail -1`);
  const lines = out.split("\n");
  assert.equal(lines[0], "made     the system user hooks");
  assert.equal(lines[3], "made     /var/lib/ops (0700), the buckets; it belongs to root");
  assert.deepEqual(lines.slice(-4), [
    "/nonexistent:/usr/sbin/nologin",
    "drwx------ root:root /var/lib/ops",
    "kept     the user hooks",
    "",
  ]);
});

test("a setting that systemd would read something else into is refused, and a unit of somebody else has no settings", () => {
  for (const text of ["", "%n", "$HOME", 'a"b', "a\\b", "a\nb"])
    assert.throws(() => serviceUnit({ addr: text }, PROGRAM), { code: "usage", message: /cannot stand in a systemd unit/ });
  // These settings take no quotes.
  for (const name of ["user", "token-file", "totp-secret-file"])
    assert.throws(() => serviceUnit({ [name]: "/etc/a b" }, PROGRAM), { code: "usage", message: /give it without blanks/ });
  for (const unit of ["", "[Service]\nExecStart=/bin/true\n", "[X-Ops]\nSettings={\n", '[X-Ops]\nSettings={"a": 1}\n'])
    assert.equal(settingsOfUnit(unit), undefined);
});

test("--print shows steps and unit, needs no root and changes nothing", async () => {
  const { code, stdout } = await ops(["server", "install", "--print", "--addr", "127.0.0.1:80", "--totp-secret-file", "t"]);
  assert.equal(code, 0);
  assert.match(stdout, /^# 1\. the system user ops\n(# .*\n)+\n# Written by `ops server install`/);
  assert.ok(stdout.includes(`LoadCredential=totp:${path.resolve("t")}\n`));
  assert.deepEqual({ ...settingsOfUnit(stdout) }, { addr: "127.0.0.1:80", "totp-secret-file": path.resolve("t") });
});

test("an installation makes user, token, root and unit; a second one, an upgrade, keeps token and settings", {
  skip: !mayMount,
}, () => {
  const out = onMachine(`ops server install --addr 127.0.0.1:80
     look /etc/ops /etc/ops/token /var/lib/ops /etc/systemd/system/ops.service
     tr -d '\\n' < /etc/ops/token | wc -c; getent passwd ops | cut -d: -f 6,7
     cp /etc/ops/token /mnt; echo --; ops server install; echo --
     sed -i 's/^LimitNOFILE.*/LimitNOFILE=1/' /etc/systemd/system/ops.service
     touch /var/lib/ops/bucket; ops server install; cmp /mnt/token /etc/ops/token
     grep -c 'LimitNOFILE=65536\\|--addr 127.0.0.1:80' /etc/systemd/system/ops.service`);
  const [first = "", second = "", third = ""] = out.split("--\n");
  assert.deepEqual(first.split("\n"), [
    "made     the system user ops",
    "made     /etc/ops/token (0600), the API token of 256 bits",
    "checked  the settings: address, certificate, TOTP secret",
    "made     /var/lib/ops (0700), the buckets; it belongs to ops",
    "checked  ops can use /opt/ops/node, /opt/ops/bin/ops.js",
    "made     /etc/systemd/system/ops.service (0644)",
    "start it: systemctl daemon-reload && systemctl enable ops.service && systemctl restart ops.service",
    "sign in with the token: cat /etc/ops/token",
    "drwx------ root:root /etc/ops",
    "-rw------- root:root /etc/ops/token",
    "drwx------ ops:ops /var/lib/ops",
    "-rw-r--r-- root:root /etc/systemd/system/ops.service",
    "43",
    "/var/lib/ops:/usr/sbin/nologin",
    "",
  ]);
  assert.deepEqual(second.match(/^(made|kept)/gm), ["kept", "kept", "kept", "kept"]);
  assert.deepEqual(third.match(/^(made|kept)/gm), ["kept", "kept", "kept", "made"]);
  assert.match(third, /\n2\n$/);
});

test("--now asks systemd to start it, again too; uninstalling removes the unit and says what stays", { skip: !mayMount }, () => {
  const out = onMachine(`ops server install --now; ls -d /etc/ops 2>&1 || true; mkdir -p /run/systemd/system
     ops server install --now | tail -3; cat /mnt/asked; echo --; ops server uninstall; tail -2 /mnt/asked
     ls /etc/systemd/system/ops.service /var/lib/ops /etc/ops 2>&1 || true; ops server uninstall`);
  assert.deepEqual(out.split("\n"), [
    "ops: Cannot start ops.service: systemd does not run here",
    "exit 1",
    "ls: cannot access '/etc/ops': No such file or directory",
    "made     /etc/systemd/system/ops.service (0644)",
    "started  ops.service; its log: journalctl -u ops",
    "sign in with the token: cat /etc/ops/token",
    "systemctl daemon-reload",
    "systemctl enable ops.service",
    "systemctl restart ops.service",
    "--",
    "removed  /etc/systemd/system/ops.service",
    "kept     /var/lib/ops, the buckets",
    "kept     /etc/ops/token, the API token",
    "kept     the user ops",
    "systemctl disable --now ops.service",
    "systemctl daemon-reload",
    "ls: cannot access '/etc/systemd/system/ops.service': No such file or directory",
    "/etc/ops:",
    "token",
    "",
    "/var/lib/ops:",
    "ops: Cannot remove the service: /etc/systemd/system/ops.service does not exist",
    "exit 1",
    "",
  ]);
});

test("programs that an installation starts get no variable of a server", { skip: !mayMount }, () => {
  const out = onMachine(`mkdir -p /run/systemd/system;
     printf '#!/bin/sh\\nenv >> /mnt/environment\n' > /opt/programs/systemctl; export OPS_SERVE_TOKEN=hidden
     ops server install --now | tail -1; grep -c ^PATH= /mnt/environment; grep OPS_SERVE /mnt/environment || true`);
  assert.equal(out, "sign in with the token: cat /etc/ops/token\n3\n");
});

test("the root of a service is the user's alone, whoever made it before, and with which mode", { skip: !mayMount }, () => {
  const out = onMachine(`mkdir -m 755 /var/lib/empty; ops server install --root /var/lib/empty | grep empty; look /var/lib/empty
     chmod 755 /var/lib/empty; touch /var/lib/empty/x; ops server install | grep empty; look /var/lib/empty`);
  const made = "made     /var/lib/empty (0700), the buckets; it belongs to ops\ndrwx------ ops:ops /var/lib/empty\n";
  assert.equal(out, made + made);
});

test("an installation that could not start is refused before there is a unit", { skip: !mayMount }, async (t) => {
  const { certFile, keyFile } = await certificateFor(t);
  const out = onMachine(`mkdir -m 700 /etc/tls; cp ${certFile} ${keyFile} /etc/tls; chmod 600 /etc/tls/*
     tls="--tls-cert /etc/tls/${path.basename(certFile)} --tls-key /etc/tls/${path.basename(keyFile)}"
     ops server install --addr 0.0.0.0:80 | tail -2; ops server install $tls | tail -2
     mkdir -p /var/lib/old; touch /var/lib/old/x; ops server install --root /var/lib/old | tail -2
     chmod 700 /opt/ops/lib; ops server install | tail -2
     ls /etc/systemd/system/ops.service 2>&1 || true
     echo '[Service]' > /etc/systemd/system/ops.service; ops server install | tail -2; ops server uninstall`);
  const told = out.split("\n").filter((line) => !line.startsWith("exit "));
  const expected = [
    /^ops: --addr 0\.0\.0\.0:80 can be reached from other hosts/,
    /^ops: ops cannot read \/etc\/tls\/.*: chgrp ops .* && chmod g\+r .*, and its folders too$/,
    /^ops: Cannot use the root \/var\/lib\/old: its buckets do not belong to ops; run: chown -R ops: \/var\/lib\/old$/,
    /^ops: Cannot run .* as ops: install ops where every user can read it/,
    /^ls: cannot access/,
    /^ops: Cannot use \/etc\/systemd\/system\/ops\.service: `ops server install` did not write it; move it away$/,
    /^ops: Cannot use \/etc\/systemd\/system\/ops\.service/,
    /^$/,
  ];
  assert.equal(told.length, expected.length, out);
  for (const [index, pattern] of expected.entries()) assert.match(told[index] ?? "", pattern);
  assert.equal(out.match(/^exit [12]$/gm)?.length, 6);
});

for (const [what, program] of [
  ["is missing", undefined],
  ["fails", "#!/bin/sh\necho no socket >&2\nexit 1\n"],
] as const)
  test(`a server whose systemd-notify ${what} serves all the same, and its log says so`, async (t) => {
    const folder = writeFiles(temporaryFolder(t), program === undefined ? {} : { "bin/systemd-notify": program });
    if (program !== undefined) chmodSync(path.join(folder, "bin", "systemd-notify"), 0o755);
    const server = await LocalServer.start(path.join(folder, "root"), {
      env: { NOTIFY_SOCKET: "/nowhere", PATH: `${folder}/bin` },
    });
    t.after(() => server.stop("SIGKILL"));
    await until("the warning", () => server.log.includes("warning: Cannot tell systemd that the server is ready: "));
    assert.equal((await server.call("GET", "/api/buckets")).status, 200);
    await server.stop();
    assert.equal(server.process.exitCode, 0);
  });

test("a server that systemd has started says when it is ready", async (t) => {
  const folder = writeFiles(temporaryFolder(t), { "bin/systemd-notify": '#!/bin/sh\necho "$* $NOTIFY_SOCKET" > "$0.told"\n' });
  const told = path.join(folder, "bin", "systemd-notify.told");
  spawnSync("chmod", ["+x", path.join(folder, "bin", "systemd-notify")]);
  const env = { NOTIFY_SOCKET: "/nowhere", PATH: `${folder}/bin:${process.env.PATH}` };
  const server = await LocalServer.start(path.join(folder, "root"), { env });
  t.after(() => server.stop());
  const read = () => spawnSync("cat", [told], { encoding: "utf8" }).stdout;
  await until("the server has told systemd", () => read() !== "");
  assert.equal(read(), "--ready /nowhere\n");
});

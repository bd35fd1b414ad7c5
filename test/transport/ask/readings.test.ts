import assert from "node:assert/strict";
import { rm } from "node:fs/promises";
import { cpus, hostname, networkInterfaces, release, totalmem } from "node:os";
import { test } from "node:test";
import { parseFacts, parseSysstat, parseUptime, takeReading } from "../../../lib/transport/ask/readings.ts";
import { ScriptAnswer } from "../../../lib/transport/base/scripts.ts";
import { temporaryWorker } from "../../helpers/worker.ts";

const signal = new AbortController().signal;

for (const userland of ["system", "busybox"] as const) {
  test(`with the ${userland} userland a worker tells what it is, and needs no folder of the bucket for it`, async (t) => {
    const { transport, folder } = await temporaryWorker(t, userland);
    await rm(folder, { recursive: true });
    const facts = await takeReading(transport, "facts", signal);
    assert.equal(facts.hostname, hostname());
    assert.equal(facts.kernel, release());
    assert.equal(facts.cpu_count, cpus().length);
    assert.equal(facts.memory_mb, Math.ceil(totalmem() / 1024 / 1024));
    const addresses = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
    for (const { address, internal } of addresses)
      if (!internal) assert.ok(facts.addresses.includes(address.split("%")[0] ?? ""), address);
    assert.ok(facts.disks.some(({ mount, size_bytes: size }) => mount === "/" && size > 0));
    assert.equal(facts.tools.includes("make"), true);
    assert.equal(facts.tools.includes("python3"), userland === "system");
  });

  test(`with the ${userland} userland a worker tells its load and how busy it is`, async (t) => {
    const { transport } = await temporaryWorker(t, userland);
    const uptime = await takeReading(transport, "uptime", signal);
    assert.ok(uptime.uptime_s > 0 && uptime.load1 >= 0);
    const sysstat = await takeReading(transport, "sysstat", signal);
    assert.equal(sysstat.mem_total_bytes, totalmem());
    assert.ok(sysstat.cpu_pct >= 0 && sysstat.cpu_pct <= 100);
  });
}

const FACTS = `hostname web1
os "Debian GNU/Linux 12 (bookworm)"
kernel 6.1.0
arch x86_64
cpu_count 4
cpu_mhz 800.000
cpu_mhz 2399.600
cpu_max_khz 3600000
memory_kb 8152313
boot_time 1700000000
address 127.0.0.1
address 10.0.0.7
address 10.0.0.7
address6 00000000000000000000000000000001
address6 20010db8000000000000000000000007
disk /dev/sda1 1000 600 300 67% /
disk /dev/sda1 1000 600 300 67% /again
disk overlay 2000 1 1999 1% /srv/a b
tool make
tool unheard-of
end
`;

test("facts: memory is rounded up to MB, clocks are the highest of now, each device and address is there once", () => {
  assert.deepEqual(parseFacts(new ScriptAnswer(FACTS)), {
    hostname: "web1",
    os: "Debian GNU/Linux 12 (bookworm)",
    kernel: "6.1.0",
    arch: "x86_64",
    cpu_count: 4,
    cpu_mhz: 2400,
    memory_mb: 7962,
    boot_time: "2023-11-14T22:13:20.000Z",
    addresses: ["10.0.0.7", "2001:db8::7"],
    disks: [
      { mount: "/", device: "/dev/sda1", size_bytes: 1024000, used_bytes: 614400, available_bytes: 307200 },
      { mount: "/srv/a b", device: "overlay", size_bytes: 2048000, used_bytes: 1024, available_bytes: 2046976 },
    ],
    tools: ["make"],
  });
});

test("facts that a worker does not tell are null; the clock falls back on the highest possible", () => {
  const facts = parseFacts(new ScriptAnswer("cpu_count 1\nmemory_kb 1\nboot_time 1\ncpu_max_khz 3600000\nend\n"));
  assert.deepEqual([facts.hostname, facts.os, facts.cpu_mhz, facts.disks], [null, null, 3600, []]);
  const none = parseFacts(new ScriptAnswer("cpu_count 1\nmemory_kb 1\nboot_time 1\nend\n"));
  assert.equal(none.cpu_mhz, null);
});

const SYSSTAT = `memory MemTotal 1000
memory MemAvailable 400
memory SwapTotal 100
memory SwapFree 90
block sda
block sdb
before_uptime 100.00 1
before_cpu 100 0 100 700 100 0 0 0 50 0
before_disk sda 1 2 1000 4 5 6 2000 8 9 100 11
before_disk sda1 1 2 1000 4 5 6 2000 8 9 100 11
before_disk sdb 0 0 0 0 0 0 0 0 0 0 0
before_net lo 5 0 0 0 0 0 0 0 5 0 0 0 0 0 0 0
before_net eth0 1000 0 0 0 0 0 0 0 5000 0 0 0 0 0 0 0
after_uptime 102.00 1
after_cpu 130 0 110 750 110 0 0 0 50 0
after_disk sda 1 2 1400 4 5 6 2200 8 9 600 11
after_disk sda1 1 2 1400 4 5 6 2200 8 9 600 11
after_disk sdb 0 0 0 0 0 0 0 0 0 0 0
after_net lo 9 0 0 0 0 0 0 0 9 0 0 0 0 0 0 0
after_net eth0 3000 0 0 0 0 0 0 0 4000 0 0 0 0 0 0 0
after_net new0 3000 0 0 0 0 0 0 0 4000 0 0 0 0 0 0 0
end
`;

test("sysstat: what rose between two readings, by the time between them; a counter that began anew has not risen", () => {
  assert.deepEqual(parseSysstat(new ScriptAnswer(SYSSTAT)), {
    cpu_pct: 40,
    mem_total_bytes: 1024000,
    mem_used_bytes: 614400,
    mem_available_bytes: 409600,
    mem_swap_total_bytes: 102400,
    mem_swap_used_bytes: 10240,
    disk: [{ device: "sda", read_bytes_per_s: 102400, write_bytes_per_s: 51200, busy_pct: 25 }],
    net: [{ interface: "eth0", rx_bytes_per_s: 1000, tx_bytes_per_s: 0 }],
  });
});

for (const [what, text, message] of [
  ["nothing", "", /it is not complete/],
  ["an answer that breaks off", FACTS.slice(0, 40), /it is not complete/],
  ["10 MB without a newline", "x".repeat(10_000_000), /it is not complete/],
  ["no number", FACTS.replace("memory_kb 8152313", "memory_kb lots"), /"lots" is not what memory_kb can be/],
  ["more processors than there can be", FACTS.replace("cpu_count 4", "cpu_count 70000"), /70000 is not what cpu_count/],
  ["half a processor", FACTS.replace("cpu_count 4", "cpu_count 0.5"), /0\.5 is not what cpu_count can be/],
  ["a number with a sign", FACTS.replace("cpu_count 4", "cpu_count -4"), /"-4" is not what cpu_count can be/],
  ["an escape sequence", FACTS.replace("boot_time ", "boot_time \x1b[2J"), /"" is not what boot_time can be/],
] as const)
  test(`${what} is no answer, told by one sentence`, () => {
    assert.throws(() => parseFacts(new ScriptAnswer(text)), { code: "failed", message });
  });

for (const [what, hostile] of [
  ["ANSI", "\x1b[31mred"],
  ["OSC", "\x1b]0;title\x07"],
  ["NUL", "a\0b"],
  ["C1", "\u009b2J"],
  ["a change of direction", "\u202eabc"],
] as const)
  test(`a name with ${what} in it is passed over`, () => {
    const facts = parseFacts(new ScriptAnswer(FACTS.replace("hostname web1", `hostname ${hostile}`)));
    assert.equal(facts.hostname, null);
  });

test("a worker that tells more than it should costs no more than a bounded answer", () => {
  const many = Array.from(
    { length: 2_000 },
    (_, at) => `disk /dev/d${at} 1 1 1 1% /d${at}\naddress 10.0.${at >> 8}.${at & 255}\n`,
  );
  const facts = parseFacts(new ScriptAnswer(FACTS.replace("end\n", `${many.join("")}end\n`)));
  assert.deepEqual([facts.disks.length, facts.addresses.length], [256, 256]);
  const long = parseFacts(new ScriptAnswer(FACTS.replace("web1", "w".repeat(10_000))));
  assert.equal(long.hostname?.length, 253);
});

test("uptime without its numbers is no answer", () => {
  assert.deepEqual(parseUptime(new ScriptAnswer("load 0.10 0.2 3 1/2 3\nuptime 12.9 1\nend\n")), {
    load1: 0.1,
    load5: 0.2,
    load15: 3,
    uptime_s: 12,
  });
  assert.throws(() => parseUptime(new ScriptAnswer("load 0.1\nuptime 1\nend\n")), { code: "failed" });
});

/** The facts of a worker that tells this besides what it must. */
const factsWith = (...lines: string[]) =>
  parseFacts(new ScriptAnswer(`cpu_count 1\nmemory_kb 1\nboot_time 1\n${lines.map((line) => `${line}\n`).join("")}end\n`));

test("facts are bounded: clocks from 1 to 1,000,000 MHz, the quotes of the system's name go only in pairs", () => {
  for (const [lines, mhz] of [
    [["cpu_mhz 1000000"], 1_000_000],
    [["cpu_mhz 1000001"], null],
    [["cpu_mhz 1.4"], 1],
    [["cpu_mhz 0.9"], null],
    [["cpu_mhz 2", "cpu_max_khz 9000"], 2],
    [["cpu_max_khz 2000", "cpu_max_khz 3500"], 4],
    [["cpu_mhz fast", "cpu_max_khz 3000"], 3],
  ] as const)
    assert.equal(factsWith(...lines).cpu_mhz, mhz, lines.join());
  const names = ["'a b'", '"a"', "\"a'", '"a', 'a"', 'a "b" c', 'a "b"'];
  assert.deepEqual(
    names.map((name) => factsWith(`os ${name}`).os),
    ["a b", "a", "\"a'", '"a', 'a"', 'a "b" c', 'a "b"'],
  );
  const whole = (name: string, value: number) =>
    new ScriptAnswer(FACTS.replace(new RegExp(`^${name} .*$`, "m"), `${name} ${value}`));
  assert.equal(parseFacts(whole("cpu_count", 65_536)).cpu_count, 65_536);
  assert.throws(() => parseFacts(whole("cpu_count", 65_537)), /65537 is not what cpu_count can be/);
  assert.throws(() => parseFacts(whole("memory_kb", 2 ** 40 + 1)), /is not what memory_kb can be/);
  assert.equal(parseFacts(whole("memory_kb", 2 ** 40)).memory_mb, 2 ** 30);
  assert.throws(() => parseFacts(whole("boot_time", 2 ** 40 + 1)), /is not what boot_time can be/);
});

test("addresses and disks of another form are passed over", () => {
  const four = [
    "1.2.3.4",
    "128.0.0.1",
    "12.7.0.1",
    "127.0.0.2",
    "1.2.3",
    "1.2.3.4.5",
    "1.2.3.4444",
    "1111.2.3.4",
    "a1.2.3.4",
    "1.2.3.4x",
  ];
  const six = ["fe800000000000000000000000000001", `${"0".repeat(31)}1`, `${"0".repeat(32)}`, "fe80", `${"f".repeat(33)}`];
  const told = [...six.map((one) => `address6 ${one}`), ...four.map((one) => `address ${one}`)];
  assert.deepEqual(factsWith(...told).addresses, ["1.2.3.4", "128.0.0.1", "12.7.0.1", "fe80::1", "::"]);
  const [digits, long] = ["9".repeat(15), "d".repeat(253)];
  const good = [`${long} ${digits} ${digits} ${digits} - /${"m".repeat(1_023)}`, "b  1  2  3  4%  /b"];
  const bad = ["c 1 2 3 /c", `x${"y".repeat(253)} 1 2 3 - /d`, "e 1 2 3 - ", `f ${digits}9 1 1 - /f`, `g 1 ${digits}9 1 - /g`];
  const worse = [`h 1 1 ${digits}9 - /h`, `i 1 1 1 - /${"m".repeat(1_024)}`, "j x 1 1 - /j"];
  assert.deepEqual(
    factsWith(...[...good, ...bad, ...worse].map((line) => `disk ${line}`)).disks.map(({ device }) => device),
    [long, "b"],
  );
});

test("sysstat: a worker without MemAvailable, a short time, a busy disk and short lines", () => {
  const told = (changes: Record<string, string>) => {
    const text = Object.entries(changes).reduce((all, [line, other]) => all.replace(line, other), SYSSTAT);
    return parseSysstat(new ScriptAnswer(text));
  };
  const old = told({ "memory MemAvailable 400": "memory MemFree 300", "SwapFree 90": "SwapFree 200" });
  assert.deepEqual([old.mem_available_bytes, old.mem_used_bytes, old.mem_swap_used_bytes], [307_200, 716_800, 0]);
  const bare = told({ "memory MemTotal 1000": "memory MemTotal x", "memory SwapTotal 100": "" });
  assert.deepEqual([bare.mem_total_bytes, bare.mem_used_bytes, bare.mem_swap_total_bytes], [0, 0, 0]);
  const quick = told({ "after_uptime 102.00": "after_uptime 100.00" });
  assert.deepEqual([quick.disk[0]?.busy_pct, quick.net[0]?.rx_bytes_per_s], [100, 200_000]);
  assert.equal(told({ "after_cpu 130 0 110 750 110": "after_cpu 100 0 100 700 100" }).cpu_pct, 0);
  const guests = { "after_cpu 130 0 110 750 110 0 0 0 50 0": "after_cpu 130 0 110 751 110 5 3 1 90 9" };
  assert.equal(told(guests).cpu_pct, 44.5);
  assert.equal(told({ ...guests, "100 700 100 0 0 0 50 0": "100 700 100 0 0 0" }).cpu_pct, 44.5);
  assert.throws(() => told({ "after_cpu 130 0 110 750 110 0 0 0 50 0": "after_cpu 130 0 110 750 110 0 0" }), /after_cpu/);
  const short = told({ "before_disk sda 1 2 1000 4 5 6 2000 8 9 100 11": "before_disk sda 1 2 1000 4 5 6 2000 8 9" });
  assert.deepEqual(short.disk, []);
  const nine = told({ "after_net eth0 3000 0 0 0 0 0 0 0 4000 0 0 0 0 0 0 0": "after_net eth0 3000 0 0 0 0 0 0 0 5500" });
  assert.deepEqual(nine.net, [{ interface: "eth0", rx_bytes_per_s: 1_000, tx_bytes_per_s: 250 }]);
  const ten = told({ "after_disk sda 1 2 1400 4 5 6 2200 8 9 600 11": "after_disk sda 1 2 1400 4 5 6 2200 8 9 123" });
  assert.deepEqual(ten.disk, [{ device: "sda", read_bytes_per_s: 102_400, write_bytes_per_s: 51_200, busy_pct: 1.2 }]);
  const few = told({ "after_net eth0 3000 0 0 0 0 0 0 0 4000 0 0 0 0 0 0 0": "after_net eth0 3000 0 0 0 0 0 0 0" });
  assert.deepEqual(few.net, []);
});

test("sysstat tells of at most 256 interfaces, and of a name of up to 253 characters", () => {
  const names = [...Array.from({ length: 300 }, (_, index) => `e${index}`)];
  const lines = (when: string, all: string[], rx: number) =>
    all.map((name) => `${when}_net ${name} ${rx} 0 0 0 0 0 0 0 0\n`).join("");
  const netOf = (all: string[]) =>
    parseSysstat(new ScriptAnswer(SYSSTAT.replace("end\n", `${lines("before", all, 1)}${lines("after", all, 3)}end\n`))).net;
  assert.equal(netOf(names).length, 255, "lo is one of the 256");
  const long = "n".repeat(253);
  assert.deepEqual(
    netOf([long, `${long}n`]).map((one) => one.interface),
    ["eth0", long],
  );
});

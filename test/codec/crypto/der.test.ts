import assert from "node:assert/strict";
import { test } from "node:test";
import {
  bitString,
  element,
  elements,
  integer,
  nothing,
  octetString,
  oid,
  sequence,
  set,
  time,
  utf8,
  yes,
} from "../../../lib/codec/crypto/der.ts";

const hex = (bytes: Buffer) => bytes.toString("hex");

test("lengths are as short as they can be", () => {
  for (const [size, header] of [
    [0, "0400"],
    [127, "047f"],
    [128, "048180"],
    [255, "0481ff"],
    [256, "04820100"],
    [70_000, "0483011170"],
  ] as const)
    assert.equal(hex(element(0x04, Buffer.alloc(size))).slice(0, header.length), header, String(size));
});

test("values are encoded as X.690 says", () => {
  for (const [encoded, expected] of [
    [integer(Buffer.from([0])), "020100"],
    [integer(Buffer.from([0x7f])), "02017f"],
    [integer(Buffer.from([0x80])), "02020080"],
    [oid("2.5.4.3"), "0603550403"],
    [oid("1.2.840.113549.1.1.11"), "06092a864886f70d01010b"],
    [oid("1.2.128"), "06032a8100"],
    [oid("1.2.840.10045.4.3.3"), "06082a8648ce3d040303"],
    [bitString(Buffer.from([0xa0]), 5), "030205a0"],
    [bitString(Buffer.from([0xa0])), "030200a0"],
    [octetString(Buffer.from([0xa0])), "0401a0"],
    [set(yes(), nothing()), "31050101ff0500"],
    [utf8("ü"), "0c02c3bc"],
    [sequence(integer(Buffer.from([1])), sequence()), "30050201013000"],
    [time(new Date("2049-12-31T23:59:59.999Z")), `170d${hex(Buffer.from("491231235959Z"))}`],
    [time(new Date("2050-01-01T00:00:00Z")), `180f${hex(Buffer.from("20500101000000Z"))}`],
  ] as const)
    assert.equal(hex(encoded), expected);
});

test("a length is read in each form that it is written in", () => {
  for (const size of [0, 127, 128, 255, 256, 70_000])
    assert.deepEqual(
      elements(element(0x04, Buffer.alloc(size, 7))).map(({ content }) => content),
      [Buffer.alloc(size, 7)],
    );
});

test("what was written is read again; what is cut off is refused", () => {
  const written = sequence(integer(Buffer.from([1])), element(0xa3, Buffer.alloc(300, 7)));
  const [outer] = elements(written);
  assert.deepEqual(
    elements(outer?.content ?? Buffer.alloc(0)).map(({ tag, content }) => [tag, content.length]),
    [
      [0x02, 1],
      [0xa3, 300],
    ],
  );
  for (let size = 1; size < written.length; size++)
    assert.throws(() => elements(written.subarray(0, size)), RangeError, String(size));
});

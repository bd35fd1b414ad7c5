import assert from "node:assert/strict";
import { test } from "node:test";
import { Problems, sentenceOf } from "../../../lib/bucket/base/problems.ts";
import { BUCKET_FUNCTIONS } from "../../../lib/bucket/kv/kv-access.ts";
import { checkTemplates } from "../../../lib/bucket/workspace/jobs.ts";
import type { Failure } from "../../../lib/core/errors.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { makeBucket } from "../../helpers/workspace.ts";

const WEB = "workspace/jobs/web";
const BROKEN = '{{ get "ops/bucket" "x" }}\nä {{ nosuch 1 }}\n';

test("a build names every template that can never be rendered, beside all else that is wrong", async (t) => {
  const bucket = await makeBucket(t, {
    workers: ["a"],
    jobs: { web: { selectors: ["worker"], port: 1 }, other: { max_concurrent_starts: "many" } },
    files: {
      [`${WEB}/conf/a.conf.tpl`]: BROKEN,
      [`${WEB}/Makefile.tpl`]: "start:\n\t{{ if .Job }}\n",
      [`${WEB}/_modules/go.py.tpl`]: "{{ else }}",
      [`${WEB}/_prometheus/scrape.yaml.tpl`]: "{{ $x }}",
      [`${WEB}/_prometheus/dashboards/page.tpl`]: "{{ of another language",
      "workspace/jobs/other/b.tpl": "{{ end }}",
    },
  });
  const failure = (await build(bucket.context(), {}).catch((error) => error)) as Failure;
  const { problems } = failure.details as { problems: Parameters<typeof sentenceOf>[0][] };
  assert.deepEqual(problems.map(sentenceOf), [
    "ErrInvalidTemplate: workspace/jobs/other/b.tpl: line 1, column 4: unexpected {{end}}",
    'ErrInvalidManifest: workspace/jobs/other/manifest.json: max_concurrent_starts: expected an integer, found "many"',
    `ErrInvalidTemplate: ${WEB}/Makefile.tpl: line 3, column 1: unexpected EOF: {{if}} of line 2 has no {{end}}`,
    `ErrInvalidTemplate: ${WEB}/_modules/go.py.tpl: line 1, column 4: unexpected {{else}}`,
    `ErrInvalidTemplate: ${WEB}/_prometheus/scrape.yaml.tpl: line 1, column 4: undefined variable "$x"`,
    `ErrInvalidTemplate: ${WEB}/conf/a.conf.tpl: line 2, column 6: function "nosuch" not defined`,
  ]);
});

test("text that is not UTF-8 is no template", () => {
  const problems = new Problems();
  const file = { path: "a.tpl", mode: 0o644, sha256: "1", content: Buffer.from([0xff]) };
  checkTemplates([file], "web", problems);
  assert.deepEqual(problems.errors.map(sentenceOf), ["ErrInvalidTemplate: web/a.tpl: is not UTF-8 text"]);
});

test("every function that a template has when it is rendered is known to the build", async (t) => {
  const all = [...BUCKET_FUNCTIONS, "split", "join", "add", "int", "printf", "and", "or", "call", "index"];
  const files = { [`${WEB}/a.tpl`]: all.map((name) => `{{ if false }}{{ ${name} }}{{ end }}`).join("") };
  const bucket = await makeBucket(t, { workers: ["a"], jobs: { web: {} }, files });
  await build(bucket.context(), {});
});

import { renderTemplate } from "../../codec/template/exec.ts";
import { type TemplateFunction, type TemplateStruct, typed } from "../../codec/template/funcs.ts";

/** What a message tells, as templates name it (docs/messages.md, Bodies). */
export interface MessageFields extends TemplateStruct {
  ID: string;
  /** `recovered` where the incident is over. */
  Event: string;
  At: string;
  /** What the incident is about. */
  IncidentEvent: string;
  IncidentID: string;
  /** `open` or `over`. */
  Status: string;
  OpenedAt: string;
  /** Empty while the incident is open. */
  OverAt: string;
  /** When the receiver may forget an incident that is open. */
  ForgetAt: string;
  BucketID: string;
  Project: string;
  Bucket: string;
  /** One line. */
  Subject: string;
  /** Some lines. */
  Text: string;
  Reason: string;
  /** The first of them. */
  Places: readonly string[];
  PlaceCount: bigint;
  /** Empty where it is about several, or none. */
  Job: string;
  /** The id of the run that found it; empty without one. */
  Run: string;
}

/** A message as a build tries templates with it. */
export const SAMPLE: MessageFields = {
  ID: "0198f3a2-7b44-7c02-8e11-2a9d4c6b8f10",
  Event: "allocation_unhealthy",
  At: "2026-11-26T10:00:00.000Z",
  IncidentEvent: "allocation_unhealthy",
  IncidentID: "0198f3a2-7b44-7c02-8e11-2a9d4c6b8f11",
  Status: "open",
  OpenedAt: "2026-11-26T10:00:00.000Z",
  OverAt: "",
  ForgetAt: "2026-12-26T10:00:00.000Z",
  BucketID: "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70",
  Project: "shop",
  Bucket: "live",
  Subject: "shop/live: Unhealthy: web on 10.0.0.1",
  Text: "10.0.0.1: no answer\nSince 2026-11-26T10:00:00.000Z",
  Reason: "no answer",
  Places: ["web@10.0.0.1"],
  PlaceCount: 1n,
  Job: "web",
  Run: "0198f3a2-7b44-7c02-8e11-2a9d4c6b8f12",
};

const INCIDENT = `{"id": {{ json .IncidentID }}, "event": {{ json .IncidentEvent }}, "status": {{ json .Status }},
  "opened_at": {{ json .OpenedAt }}, "over_at": {{ if .OverAt }}{{ json .OverAt }}{{ else }}null{{ end }}}`;

const READY: Readonly<Record<(typeof READY_BODIES)[number], string>> = {
  json: `{"id": {{ json .ID }}, "at": {{ json .At }}, "event": {{ json .Event }},
 "incident": ${INCIDENT},
 "bucket": {"id": {{ json .BucketID }}, "project": {{ json .Project }}, "name": {{ json .Bucket }}},
 "subject": {{ json .Subject }}, "text": {{ json .Text }}, "reason": {{ json .Reason }},
 "places": {{ json .Places }}, "place_count": {{ .PlaceCount }}, "job": {{ json .Job }}, "run_id": {{ json .Run }}}
`,
  slack: '{"text": {{ json (mrkdwn (printf "*%s*\\n%s" .Subject .Text)) }}}\n',
  matrix: '{"msgtype": "m.text", "body": {{ json (printf "%s\\n%s" .Subject .Text) }}}\n',
  ntfy: "{{ .Subject }}\n{{ .Text }}\n",
  // Equal labels are one alert: the second message ends it.
  alertmanager: `[{"labels": {"alertname": {{ json .IncidentEvent }}, "incident": {{ json .IncidentID }}, "bucket": {{ json .BucketID }},
   "project": {{ json .Project }}, "name": {{ json .Bucket }}, "job": {{ json .Job }}},
  "annotations": {"summary": {{ json .Subject }}, "description": {{ json .Text }}},
  "startsAt": {{ json .OpenedAt }}, "endsAt": {{ if .OverAt }}{{ json .OverAt }}{{ else }}{{ json .ForgetAt }}{{ end }}}]
`,
};

/** The bodies that need no template. */
export const READY_BODIES = ["json", "slack", "matrix", "ntfy", "alertmanager"] as const;

/** What templates of bodies may call besides the functions of all templates. */
const FUNCTIONS: Readonly<Record<string, TemplateFunction>> = {
  json: typed(["any"], (value) =>
    JSON.stringify(value, (_, one) => (typeof one === "bigint" ? Number(one) : one)).replaceAll("<", "\\u003c"),
  ),
  // The three characters that Slack reads as markup.
  mrkdwn: typed(["string"], (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")),
};

/** A body: ready, or made of the template with this name. Throws `failed` with the place in the template. */
export function renderBody(name: string, templates: Readonly<Record<string, string>>, fields: MessageFields): string {
  const text = templates[name] ?? READY[name as keyof typeof READY];
  return renderTemplate(name, text, fields, { ...FUNCTIONS });
}

// The keys of a bucket: how far a change of each is, and the runs that change them (docs/keys.md).
import { el, facts } from "../base/dom.js";
import { has, needsRole } from "../base/person.js";
import { ago, said, since } from "../base/text.js";
import { curlItem, moreMenu, orderButton, orderItem, startPathOf } from "../parts/order.js";
import { region } from "../parts/region.js";
import { mark } from "../parts/state.js";

/** The runs that change keys, by their kinds: what is changed, the word, and what the run does. */
const KEY_RUNS = {
  kv_rekey: {
    title: "kv.key",
    about: "Seals secrets, private keys of certificates, and kept contents of files with secrets.",
    word: "Rekey",
    says: [
      "Makes a new kv.key and seals everything anew. Until the end both keys open; cut off, the next one goes on.",
      "No job is deployed. Snapshots keep the key that they were made with.",
    ],
  },
  ca_rotate: {
    title: "Certificate authority",
    about: "Issues the certificates of jobs. A rotation has three steps; a deploy with a build comes after each.",
    word: "Rotate",
    says: [
      "Takes the next step: begin (the next CA is trusted too), issue (it signs), or drop (the one before goes).",
      "A step that comes too early is refused, changes nothing, and names what has not been deployed.",
    ],
  },
  ssh_key_rotate: {
    title: "SSH key",
    about: "Signs in on workers and jump hosts.",
    word: "Rotate",
    says: [
      "Makes a new key, installs it by the present one, tries it everywhere, and removes the one before.",
      "For machines that cannot be reached both keys are kept until a later rotation.",
    ],
  },
};

/** @param {import("../routes.js").Page} page */
export function keysTab(page) {
  const read = async () => ({ changes: page.bucket()?.summary?.key_changes ?? [], ssh: await page.get("/secrets/ssh_key") });
  const draw = ({ changes, ssh }) => [
    !has("admin") && el("p.meta", needsRole("Changing a key", "admin")),
    Object.entries(KEY_RUNS).map(([kind, about]) => {
      const begun = changes.find((one) => one.kind === kind);
      const part = kind === "ssh_key_rotate" ? sshKeyPart(page, ssh) : null;
      return keyPanel(page, { ...about, path: startPathOf(kind) }, begun, part);
    }),
  ];
  return region(read, draw);
}

/** A key: what it is for, how far a change of it is, what else is known, and the orders. */
function keyPanel(page, { title, about, path, word, says }, begun, part) {
  const done = ({ run_id: id }) => (location.hash = page.link("runs", [id]));
  const action = begun ? "Go on" : word;
  const order = { path, says, danger: true, action, title: `${begun ? "Go on with the change of" : word} ${title}?` };
  const controls = !part?.isMissing && [
    orderButton(page, "Plan", { path, body: { dry_run: true } }, { done }),
    orderButton(page, `${action} …`, order, { done }),
    part && moreMenu(part.items, `More orders of the ${title}`),
  ];
  return el(
    "section.panel.pad.stack",
    { key: title, "aria-label": title },
    el("div.spread", el("h2", title), el("div.controls", controls)),
    el("p.meta", about),
    begun && goesOn(begun),
    part?.content,
  );
}

/** What is left of a change that has begun. */
function goesOn({ since: from, left, next }) {
  const parts = [mark("soon"), el("b", "A change goes on"), since(from), el("span", said(left)), el("code", said(next))];
  return el("p.freeze", parts);
}

/** The ssh key itself: stored, replaced and removed by hand. */
function sshKeyPart(page, key) {
  const path = "/secrets/ssh_key";
  const fill = async ({ target }) => (target.form.elements.private_key.value = await target.files[0].text());
  const upload = {
    method: "PUT",
    path,
    asks: [
      { name: "file", label: "From a file", type: "file", onchange: fill },
      { name: "private_key", label: "Private key", hint: "OpenSSH or PEM, without a passphrase", rows: 8, required: true },
    ],
    body: (typed) => ({ private_key: `${typed.private_key?.trimEnd()}\n` }),
    example: { private_key: "…" },
    danger: key.present,
    says: [`${key.present ? "Replaces" : "Stores"} the private key with which workers are reached. It is never shown again.`],
    action: key.present ? "Replace the key" : "Store the key",
  };
  if (!key.present) {
    const put = orderButton(page, "Upload a key …", upload, { style: "primary", free: true });
    const none = el("p", "There is no key: workers cannot be reached over ssh.");
    return { isMissing: true, content: [none, el("div.controls", put)] };
  }
  const gone = ["Workers cannot be reached over ssh any more."];
  const remove = { method: "DELETE", path, says: gone, danger: true, action: "Remove the key" };
  const items = () => [
    orderItem(page, "Replace the key …", upload, { free: true }),
    curlItem(page, { method: "GET", path }),
    el("hr"),
    orderItem(page, "Remove the key …", remove, { dangerous: true, free: true }),
  ];
  const known = [
    ["Type", key.type],
    ["Fingerprint", el("code", key.fingerprint)],
    ["For authorized_keys", el("code", key.public_key)],
    ["Stored", ago(key.updated_at)],
  ];
  return { items, content: [!key.type && el("p.error", "ssh cannot use this key."), facts(known)] };
}

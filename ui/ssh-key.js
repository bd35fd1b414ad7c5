import { bucketPath, call } from "./api.js";
import { ask } from "./dialog.js";
import { button, el, facts } from "./dom.js";
import { field } from "./fields.js";
import { ago } from "./format.js";
import { nothing, part } from "./part.js";

/** The private key with which workers are reached: it can be put there and removed, but never read. */
export function keyParts({ bucketId, nameOfBucket }) {
  const url = bucketPath(bucketId, "/secrets/ssh_key");
  const tools = [
    button("Upload key", () => upload()),
    button("Remove key …", () => remove(), { class: "danger" }),
  ];
  const key = part("SSH key for the workers", () => call("GET", url), draw, { tools });

  function draw({ present, type, fingerprint, public_key, updated_at }) {
    if (!present)
      return nothing("There is no key: workers cannot be reached over ssh until one is uploaded.");
    return [
      type ? null : el("p", { class: "error" }, "ssh cannot use this key."),
      facts([
        ["Type", type],
        ["Fingerprint", fingerprint && el("code", {}, fingerprint)],
        ["Public key", public_key && el("code", {}, public_key)],
        ["Stored", updated_at && ago(updated_at)],
      ]),
    ];
  }

  async function upload() {
    const text = el("textarea", {
      rows: 8,
      required: true,
      spellcheck: "false",
      autocomplete: "off",
      class: "secret",
    });
    const file = el("input", { type: "file" });
    file.addEventListener("change", async () => {
      text.value = await file.files[0].text();
    });
    const submit = async () => {
      const private_key = text.value.endsWith("\n") ? text.value : `${text.value}\n`;
      await call("PUT", url, { body: { private_key } });
      text.value = "";
    };
    const says = [
      "Replaces the key that this bucket has, if any. The private part is kept on the server and never shown again.",
    ];
    const fields = [
      field("From a file", file),
      field("Private key", text, "OpenSSH or PEM, without a passphrase"),
    ];
    if (await ask({ title: "Upload the SSH key", says, fields, action: "Store key", submit })) key.refresh();
  }

  async function remove() {
    const name = nameOfBucket();
    const says = [
      `Removes the private key of ${name} from this server: its workers cannot be reached over ssh any more.`,
    ];
    const submit = () => call("DELETE", url);
    const question = {
      title: "Remove the SSH key",
      says,
      word: name,
      action: "Remove key",
      danger: true,
      submit,
    };
    if (await ask(question)) key.refresh();
  }
  return [key];
}

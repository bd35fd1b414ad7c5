/** `el("p.hint", { title, onclick }, "text", [others])` */
export function el(name, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  if (classes.length > 0) element.className = classes.join(" ");
  const attributes = children[0]?.constructor === Object ? children.shift() : {};
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key.slice(2), value);
    else if (isThere(value)) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(2).filter(isThere));
  return element;
}

function isThere(value) {
  return (value ?? false) !== false;
}

/** Shows a sentence, or nothing. */
export function tell(place, message, more = []) {
  place.replaceChildren(message, ...more);
  place.hidden = message === "";
}

const drawn = new WeakMap();

/** Draws a list; what is the same stays. */
export function drawList(parent, items, draw) {
  const before = drawn.get(parent) ?? [];
  const after = items.map((item) => {
    const content = JSON.stringify(item);
    const at = before.findIndex((old) => old.content === content);
    return at < 0 ? { content, node: draw(item) } : before.splice(at, 1)[0];
  });
  drawn.set(parent, after);
  for (const { node } of before) node.remove();
  for (const [index, { node }] of after.entries())
    if (parent.children[index] !== node) parent.insertBefore(node, parent.children[index] ?? null);
}

/** A hidden place for a problem. */
export function alertPlace() {
  return el("p", { class: "error", role: "alert", hidden: true });
}

/** A button that submits no form. */
export function button(label, onclick, attributes = {}) {
  return el("button", { type: "button", onclick, ...attributes }, label);
}

/** A box that scrolls. */
export function scroller(label, content, name = "div.scroll") {
  return el(name, { tabindex: 0, role: "group", "aria-label": label }, content);
}

/** Text of some lines. */
export function textBox(label, text) {
  return scroller(label, text || "(empty)", "pre");
}

/** Names and values. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => isThere(value) && value !== "");
  const rows = shown.map(([name, value]) => el("div", el("dt", name), el("dd", value)));
  return el("dl.facts", rows);
}

/** Asks, then does `submit`. */
export function ask({ title, says = [], fields, word, action, leave = "Cancel", danger, submit }) {
  const { promise, resolve } = Promise.withResolvers();
  const problem = alertPlace();
  const typed = el("input", { autocomplete: "off", spellcheck: "false" });
  const confirm = el(danger ? "button.danger" : "button.primary", { autofocus: leave === "" }, action);
  const match = () => {
    confirm.disabled = word && typed.value.trim() !== word;
  };
  const form = el(
    "form",
    { oninput: match },
    says.map((sentence) => sentence && el("p", sentence)),
    fields,
    word && el("label.field", el("span", "Type ", el("b", word), " to go on"), typed),
    problem,
    el("div.controls", confirm, leave !== "" && button(leave, () => dialog.close())),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    confirm.disabled = true;
    tell(problem, "");
    try {
      await submit?.();
      resolve(true);
      dialog.close();
    } catch (error) {
      tell(problem, error.message, error.way);
    }
    match();
  });
  match();
  const heading = el("h2", { id: "dialog-title" }, title);
  const dialog = el("dialog", { "aria-labelledby": "dialog-title" }, heading, form);
  dialog.addEventListener("close", () => {
    dialog.remove();
    resolve(false);
  });
  document.body.append(dialog);
  dialog.showModal();
  return promise;
}

/** Closes every dialog. */
export function closeDialogs() {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}

/**
 * An element: `el("p.hint", { title, onclick }, "text", [others])`. Attributes and children that are false, null or
 * undefined are left out. Text is never read as HTML.
 */
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
  return value !== false && value !== null && value !== undefined;
}

/** Shows a sentence; an empty one hides its place. */
export function tell(place, message) {
  place.textContent = message;
  place.hidden = message === "";
}

const drawn = new WeakMap();

/** Brings children to `items`, keeping those that are the same: neither focus nor selection is lost. */
export function drawList(parent, items, keyOf, draw) {
  const before = drawn.get(parent) ?? new Map();
  const after = new Map();
  for (const item of items) {
    const [key, content] = [keyOf(item), JSON.stringify(item)];
    const old = before.get(key);
    after.set(key, old?.content === content ? old : { content, node: draw(item) });
  }
  drawn.set(parent, after);
  const nodes = [...after.values()].map(({ node }) => node);
  for (const child of [...parent.children]) if (!nodes.includes(child)) child.remove();
  nodes.forEach((node, index) => {
    if (parent.children[index] !== node) parent.insertBefore(node, parent.children[index] ?? null);
  });
}

/** A hidden place to tell what went wrong. */
export function alertPlace() {
  return el("p", { class: "error", role: "alert", hidden: true });
}

/** A button that submits no form. */
export function button(label, onclick, attributes = {}) {
  return el("button", { type: "button", onclick, ...attributes }, label);
}

/** Names and values, without the empty ones. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => isThere(value) && value !== "");
  return el(
    "dl.facts",
    shown.map(([name, value]) => el("div", el("dt", name), el("dd", value))),
  );
}

/**
 * An element: `el("p.hint", { title }, "text")`. The name may carry classes; attributes may be left out. Children are
 * elements, text, or lists of both; what is false, null or undefined is left out. Text is never read as HTML.
 * An attribute that is a function is a listener (`onclick`); one that is false, null or undefined is left out.
 */
export function el(name, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  if (classes.length > 0) element.className = classes.join(" ");
  const attributes = children[0]?.constructor === Object ? children.shift() : {};
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(
    ...children.flat(2).filter((child) => child !== false && child !== null && child !== undefined),
  );
  return element;
}

/** Shows a sentence in a place that is otherwise hidden; an empty one hides it. */
export function tell(place, message) {
  place.textContent = message;
  place.hidden = message === "";
}

const drawn = new WeakMap();

/**
 * Brings the children of a list to `items`, keeping every child whose item is the same as before, so that neither the
 * focus nor a selection is lost when a list is read again.
 */
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

/** The place for a sentence about what went wrong: hidden until `tell` fills it. */
export function alertPlace() {
  return el("p", { class: "error", role: "alert", hidden: true });
}

/** A button that is never the submit button of a form around it. */
export function button(label, onclick, attributes = {}) {
  return el("button", { type: "button", onclick, ...attributes }, label);
}

/** Names and values, one below the other; values that are null, undefined or empty are left out. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", { class: "facts" }, ...shown.map(([name, value]) => fact(name, value)));
}

function fact(name, value) {
  return el("div", {}, el("dt", {}, name), el("dd", {}, value));
}

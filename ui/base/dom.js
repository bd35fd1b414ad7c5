/**
 * An element: `el("p.hint", { title, onclick }, "text", [others])`. The name may carry classes. Attributes and children
 * that are null or false are left out, functions listen, and text is never read as HTML.
 * @param {string} name
 * @param {...any} children the first may be an object of attributes
 * @returns {HTMLElement & Record<string, any>}
 */
export function el(name, ...children) {
  return made(name, children, (tag) => document.createElement(tag));
}

const SVG = "http://www.w3.org/2000/svg";

/**
 * The same for a drawing.
 * @returns {SVGElement & Record<string, any>}
 */
export function svg(name, ...children) {
  return made(name, children, (tag) => document.createElementNS(SVG, tag));
}

function made(name, children, create) {
  const [tag, ...classes] = name.split(".");
  const element = create(tag);
  const attributes = children[0]?.constructor === Object ? children.shift() : {};
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") listen(element, key, value);
    else if (key === "class") classes.push(value);
    else if (key === "key") element.key = value;
    else if (isThere(value)) element.setAttribute(key, value === true ? "" : value);
  }
  const names = classes.filter(isThere).join(" ");
  if (names !== "") element.setAttribute("class", names);
  element.append(...flat(children));
  return element;
}

/** A listener is a property, so that {@link patch} can hand it over. */
function listen(element, key, listener) {
  element[key] = listener;
  element.listeners = [...(element.listeners ?? []), key];
}

function isThere(value) {
  return (value ?? false) !== false && value !== "";
}

function flat(children) {
  return children.flat(Infinity).filter(isThere);
}

/**
 * Makes the children of an element look like `children`, and keeps what is there already: focus, place in a scroll, what is
 * typed and which folds are open. Elements with the same `key`, or the same name at the same place, count as the same. An
 * element with `own` set draws itself: its content is left alone.
 */
export function patch(parent, ...children) {
  const wanted = flat(children).map((one) => (one instanceof Node ? one : document.createTextNode(String(one))));
  const keyed = new Map([...parent.childNodes].filter((one) => one.key !== undefined).map((one) => [one.key, one]));
  let place = parent.firstChild;
  for (const node of wanted) {
    const found = node.key === undefined ? place : (keyed.get(node.key) ?? place);
    const kept = found && isSame(found, node) ? found : node;
    if (kept === place) place = place.nextSibling;
    else parent.insertBefore(kept, place);
    if (kept !== node) renew(kept, node);
  }
  while (place?.nextSibling) place.nextSibling.remove();
  place?.remove();
}

function isSame(old, now) {
  if (old === now) return true;
  return old.nodeName === now.nodeName && old.key === now.key && !old.own && !now.own;
}

/** What a person has changed is that person's. */
const PERSONS = new Set(["open", "value", "checked"]);

function renew(old, now) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== now.data) old.data = now.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!now.hasAttribute(name) && !PERSONS.has(name)) old.removeAttribute(name);
  for (const { name, value } of now.attributes) {
    if (old.getAttribute(name) === value || PERSONS.has(name)) continue;
    // The policy of the page lets a script set styles, but not the attribute.
    if (name === "style") old.style.cssText = value;
    else old.setAttribute(name, value);
  }
  for (const key of old.listeners ?? []) old[key] = null;
  for (const key of now.listeners ?? []) old[key] = now[key];
  old.listeners = now.listeners;
  if (old.nodeName !== "TEXTAREA") patch(old, ...now.childNodes);
}

/** A hidden place for a problem. */
export function alertPlace() {
  return el("p.error", { role: "alert", hidden: true });
}

/** A button that submits no form. */
export function button(label, onclick, attributes = {}) {
  return el("button", { type: "button", onclick, ...attributes }, label);
}

/** A link. */
export function a(href, ...content) {
  return el("a", { href }, content);
}

/** A box that scrolls. */
export function scroller(label, content, name = "div.scroll") {
  return el(name, { tabindex: 0, role: "group", "aria-label": label }, content);
}

/** Names and values; what is missing is left out. */
export function facts(pairs) {
  const rows = pairs.filter(([, value]) => isThere(value)).map(([name, value]) => el("div", el("dt", name), el("dd", value)));
  return el("dl.facts", rows);
}

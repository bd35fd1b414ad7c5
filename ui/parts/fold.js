import { el } from "../base/dom.js";

/**
 * A fold whose content is made while it is open.
 * @param {{ folds: Map<string, boolean>, draw: () => void }} view remembers which folds are open, and draws again
 * @param {string} key
 * @param {any} summary
 * @param {() => any} content
 * @param {{ open?: boolean, kind?: string | false }} [options] whether it is open at first, and a class
 */
export function fold(view, key, summary, content, { open = false, kind } = {}) {
  const isOpen = view.folds.get(key) ?? open;
  const ontoggle = ({ target }) => {
    if (target.open === (view.folds.get(key) ?? open)) return;
    view.folds.set(key, target.open);
    view.draw();
  };
  // What becomes open by itself is another element: a patch leaves it to persons what is open.
  return el(
    "details.fold",
    { key: open ? `${key}, open` : key, open: isOpen, class: kind, ontoggle },
    el("summary", summary),
    isOpen && content(),
  );
}

/** Rows that stand for so many equal things: names, cut after some; a click shows the rest. */
export function rest(view, key, summary, names, draw = (name) => el("li", name)) {
  return fold(view, key, summary, () => el("ul.names", names.map(draw)));
}

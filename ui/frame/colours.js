import { prefer } from "../base/preferences.js";
import { choice } from "../parts/form.js";

const SCHEMES = [
  ["", "as the system"],
  ["light", "light"],
  ["dark", "dark"],
];

/** The choice of light or dark, which the browser remembers. */
export function colours() {
  const root = document.documentElement.style;
  return choice("Colours", SCHEMES, root.colorScheme, (value) => {
    root.colorScheme = value;
    prefer("colours", value);
  });
}

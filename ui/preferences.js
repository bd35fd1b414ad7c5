/** What this browser remembers: no token, nothing of a bucket. */
export function preference(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(`ops.${name}`)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** Remembers, where the browser lets it. */
export function prefer(name, value) {
  try {
    localStorage.setItem(`ops.${name}`, JSON.stringify(value));
  } catch {}
}

document.documentElement.style.colorScheme = preference("colours", "");

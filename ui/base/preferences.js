/** What this browser remembers: no token, nothing of a bucket but the rows that were dismissed. */
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

/** Keeps what is typed into a form of this tab, until it is sent. */
export const draft = {
  read(name) {
    try {
      return JSON.parse(sessionStorage.getItem(`ops.draft.${name}`)) ?? {};
    } catch {
      return {};
    }
  },
  keep(name, values) {
    try {
      sessionStorage.setItem(`ops.draft.${name}`, JSON.stringify(values));
    } catch {}
  },
  drop(name) {
    try {
      sessionStorage.removeItem(`ops.draft.${name}`);
    } catch {}
  },
};

document.documentElement.style.colorScheme = preference("colours", "");

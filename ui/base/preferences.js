/** What this browser remembers: no token, nothing of a bucket but the rows that were dismissed. */
export function preference(name, otherwise) {
  return kept(() => localStorage, name) ?? otherwise;
}

/** Remembers. */
export function prefer(name, value) {
  keep(() => localStorage, name, value);
}

/** Keeps what is typed into a form of this tab, until it is sent. */
export const draft = {
  read: (name) => kept(() => sessionStorage, `draft.${name}`) ?? {},
  keep: (name, values) => keep(() => sessionStorage, `draft.${name}`, values),
};

/** A browser may refuse its storage: then nothing is remembered. */
function kept(storage, name) {
  try {
    return JSON.parse(storage().getItem(`ops.${name}`));
  } catch {
    return null;
  }
}

function keep(storage, name, value) {
  try {
    storage().setItem(`ops.${name}`, JSON.stringify(value));
  } catch {}
}

document.documentElement.style.colorScheme = preference("colours", "");

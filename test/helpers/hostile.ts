/** What a terminal would obey: the clipboard, its title, a cleared screen in two forms, and writing turned around. */
export const HOSTILE = "\x1b]52;c;aGk=\x07\x1b]0;title\x07\x1b[2J\u009b2J\u202eabc";

/** Characters that a terminal obeys; tabs and line ends are none. */
export const OBEYED = /[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]/;

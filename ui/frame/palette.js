/** Ctrl+K: goes to anything, starts anything one may start. */
export function startPalette(_shown) {}

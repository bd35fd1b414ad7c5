/** The most bytes that a template may put out, and that one string in it may have. */
export const TEXT_LIMIT = 16 * 1024 * 1024;

/** Templates may call each other this deep. */
export const CALL_LIMIT = 100;
/** Blocks, calls and parentheses of one execution may be nested this deep in all. */
export const DEPTH_LIMIT = 1000;
/**
 * One execution takes at most this many steps: nested loops and branching calls would go on for years. A statement is
 * one; a function takes more for long texts and lists.
 */
export const STEP_LIMIT = 5_000_000;
/** How many characters or items that a function makes are one step. */
export const MADE_PER_STEP = 32;
/** How many characters or items that a function is given are one step. */
export const GIVEN_PER_STEP = 1024;

/** What the page says: a visible line (which screen readers read too), and a line for screen readers alone. */

import { Gone, Trouble } from "./api.js";

const line = /** @type {HTMLElement} */ (document.getElementById("words"));
const ear = /** @type {HTMLElement} */ (document.getElementById("spoken"));
/** @type {number | undefined} */ let timer;

/** @param {string} text @param {"word" | "trouble"} [kind] @param {boolean} [forever] */
export function say(text, kind = "word", forever = false) {
  line.textContent = text;
  line.className = `shown ${kind}`;
  clearTimeout(timer);
  if (!forever) timer = setTimeout(quiet, kind === "trouble" ? 12000 : 5000);
}

export function quiet() {
  line.className = "";
}

/** Say what went wrong. An error that is not a Trouble is a fault of the page, and goes to the console too.
 * @param {Error} error @param {boolean} [forever] */
export function complain(error, forever = false) {
  if (error.name === "AbortError") return;
  if (error instanceof Trouble) return say(error.message, "trouble", forever || error instanceof Gone);
  say("Something in this page went wrong. Save the drawing and load the page again.", "trouble", forever);
  console.error(error);
}

/** @param {string} text */
export const speak = (text) => (ear.textContent = text);

/** A probability in words, with two digits. Nothing that can happen is 0 %, and nothing that can fail is 100 %.
 * @param {number} p */
export function percent(p) {
  if (p > 0 && p < 1e-4) return "under 0.01 %";
  if (p < 1 && p >= 0.995) return "over 99 %";
  return `${Number((100 * p).toPrecision(2))} %`;
}

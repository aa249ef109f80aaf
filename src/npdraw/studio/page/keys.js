/** Keys: the name of each key is mapped to an action, unless the control with the focus uses the key itself. */

/** @type {Element | null} */ let clicked = null; // keeps the focus, but only what was reached by keys takes keys
const KEPT = "npdraw-letters"; // where the setting for keys without Ctrl is stored

/**
 * @typedef {Record<string, (event: KeyboardEvent) => void>} Actions by key: "Ctrl+z", "Shift+Digit1", "p", "Enter"
 * @param {Actions} actions
 */
export function listen(actions) {
  const letters = /** @type {HTMLInputElement} */ (document.getElementById("letters"));
  letters.checked = localStorage.getItem(KEPT) !== "no";
  letters.addEventListener("change", () => localStorage.setItem(KEPT, letters.checked ? "yes" : "no"));
  addEventListener("click", (event) => event.detail && (clicked = document.activeElement), { capture: true });
  addEventListener("focusin", () => (clicked = null));
  addEventListener("keyup", (event) => event.key === " " && !taken(event) && event.preventDefault());
  addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]") || taken(event)) return;
    const name = nameOf(event);
    if (name.length === 1 && name !== " " && !letters.checked) return;
    const action = actions[name];
    if (!action) return;
    event.preventDefault();
    action(event);
  });
}

/** @param {KeyboardEvent} event */
function nameOf(event) {
  const digit = event.shiftKey && /^Digit\d$/.test(event.code);
  const control = event.ctrlKey || event.metaKey ? "Ctrl+" : "";
  const key = digit ? event.code : event.key.length === 1 ? event.key.toLowerCase() : event.key;
  return (event.altKey ? "Alt+" : "") + control + (event.shiftKey && (digit || control) ? "Shift+" : "") + key;
}

/** Whether the focused control uses this key itself. @param {KeyboardEvent} event */
function taken(event) {
  const target = /** @type {Element} */ (event.target);
  const typed = target.matches("input[type=number], input[type=text]");
  if (event.ctrlKey || event.metaKey) return typed && event.key !== "s";
  if (event.key === "Escape") return false;
  if (typed) return true;
  if (target.matches("input")) return /^(Arrow|Home|End|Page| |Enter)/.test(event.key);
  return target !== clicked && target.matches("button, summary, a") && /^( |Enter)$/.test(event.key);
}

/** Tell while a button or a key is held. @param {HTMLElement} button @param {string} letter
 * @param {(held: boolean) => void} tell */
export function whileHeld(button, letter, tell) {
  button.addEventListener("pointerdown", () => tell(true));
  for (const kind of ["pointerup", "pointerleave", "pointercancel", "blur"]) button.addEventListener(kind, () => tell(false));
  for (const [kind, held] of /** @type {const} */ ([["keydown", true], ["keyup", false]]))
    button.addEventListener(kind, (event) => /^( |Enter)$/.test(event.key) && tell(held));
  addEventListener("keyup", (event) => event.key.toLowerCase() === letter && tell(false));
}

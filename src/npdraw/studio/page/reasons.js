/** How the model draws, for the step that the player shows: which cell, how likely it is that anything is drawn there,
 * the likeliest parts with their probabilities, and which one was drawn. */

import { Latest, api } from "./api.js";
import { percent } from "./words.js";

const LISTED = 5; // likeliest parts
const START = "Play the drawing, or move the slider: each step is explained here.";

export class Reasons {
  /**
   * @param {{panel: HTMLElement, text: HTMLElement, list: HTMLElement, button: HTMLElement}} parts
   * @param {import("./bank.js").Bank} bank
   * @param {{changed: () => void, failed: (error: Error) => void}} on
   */
  constructor(parts, bank, on) {
    this.parts = parts;
    this.bank = bank;
    this.latest = new Latest(Infinity, on.failed);
    parts.button.addEventListener("click", () => {
      parts.panel.hidden = !parts.panel.hidden;
      parts.button.ariaPressed = String(!parts.panel.hidden);
      on.changed();
    });
  }

  get shown() {
    return !this.parts.panel.hidden;
  }

  /** Explain the part in a cell of a drawing. @param {number[]} cells @param {number | null} cell null: no step */
  show(cells, cell) {
    if (!this.shown) return;
    if (cell === null) {
      this.latest.cancel();
      this.parts.text.textContent = START;
      return this.parts.list.replaceChildren();
    }
    this.latest.run(async (signal) => {
      const { what, whether } = await api.next(cells, cell, signal);
      signal.throwIfAborted();
      this.#tell(cells[cell], cell, what, whether);
    });
  }

  /** @param {number} drawn @param {number} cell @param {number[]} what @param {number} whether */
  #tell(drawn, cell, what, whether) {
    const { columns } = this.bank.model.grid;
    const likely = what.map((_, part) => part).sort((a, b) => what[b] - what[a]);
    const rank = likely.indexOf(drawn);
    const place = `Row ${Math.floor(cell / columns) + 1}, column ${(cell % columns) + 1}`;
    const which = rank ? `number ${rank + 1} by probability` : "the likeliest";
    this.parts.text.textContent =
      `${place}. Given the cells before it, the model draws here with a chance of ${percent(whether)}. ` +
      `The part that is here is ${which}.`;
    const listed = likely.slice(0, LISTED);
    if (rank >= LISTED) listed.push(drawn);
    this.parts.list.replaceChildren(...listed.map((part) => this.#entry(part, what[part], part === drawn)));
  }

  /** @param {number} part @param {number} chance @param {boolean} drawn */
  #entry(part, chance, drawn) {
    const entry = document.createElement("li");
    const words = document.createElement("span");
    words.textContent = percent(chance);
    entry.ariaCurrent = String(drawn);
    entry.title = `Part ${part}, ${this.bank.look(part)}`;
    entry.append(this.bank.picture(part), words);
    return entry;
  }
}

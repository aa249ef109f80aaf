/** The drawing, step by step in raster order. */

import { NONE } from "./drawing.js";

const PACE = 110; // milliseconds per step
const SLOW = 1500; // the same where each step is explained

/** Dispatches "step" when another step is shown. */
export class Player extends EventTarget {
  /** @type {number[]} */ #cells = [];
  /** @type {number[]} */ #drawn = [];
  /** @type {number | undefined} */ #timer;

  /** @param {{scrubber: HTMLInputElement, button: HTMLElement, icon: Element, step: HTMLElement}} parts
   * @param {() => boolean} slow */
  constructor(parts, slow) {
    super();
    this.parts = parts;
    this.slow = slow;
    parts.scrubber.addEventListener("input", () => (this.stop(), this.#shown()));
    parts.button.addEventListener("click", () => this.toggle());
  }

  /** Load a drawing, and show all of its steps. @param {number[]} cells */
  load(cells) {
    this.stop();
    this.#cells = cells;
    this.#drawn = cells.flatMap((part, cell) => (part === NONE ? [] : [cell]));
    this.parts.scrubber.max = String(this.#drawn.length);
    this.#go(this.#drawn.length);
  }

  /** The cells drawn so far. */
  get cells() {
    const drawn = new Set(this.#drawn.slice(0, this.#position));
    return this.#cells.map((part, cell) => (drawn.has(cell) ? part : NONE));
  }

  /** The cell that was drawn last, or null if none was. */
  get newest() {
    return this.#drawn[this.#position - 1] ?? null;
  }

  get whole() {
    return this.#position === this.#drawn.length;
  }

  get #position() {
    return this.parts.scrubber.valueAsNumber;
  }

  toggle() {
    if (this.#timer !== undefined) return this.stop();
    if (!this.#drawn.length) return;
    if (this.whole) this.#go(0);
    this.#timer = setInterval(() => {
      this.#go(this.#position + 1);
      if (this.whole) this.stop();
    }, this.slow() ? SLOW : PACE);
    this.#label("Stop", "#i-pause");
  }

  stop() {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#label("Play the drawing", "#i-play");
  }

  /** @param {number} position */
  #go(position) {
    this.parts.scrubber.value = String(position);
    this.#shown();
  }

  #shown() {
    const text = `${this.#position} / ${this.#drawn.length}`;
    this.parts.step.textContent = text;
    this.parts.scrubber.setAttribute("aria-valuetext", `step ${text}`);
    this.dispatchEvent(new Event("step"));
  }

  /** @param {string} name @param {string} icon */
  #label(name, icon) {
    this.parts.button.ariaLabel = name;
    this.parts.icon.setAttribute("href", icon);
  }
}

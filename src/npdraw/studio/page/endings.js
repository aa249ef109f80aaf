/** Ways in which the model would finish the drawing: ghosts beside it, to take or to leave. */

import { Latest, api } from "./api.js";
import { fixed } from "./drawing.js";

const COUNT = 4;
const PARTICLES = 64;
const SEEDS = 2 ** 32;

export class Endings {
  /** @type {number[][]} */ #cells = [];

  /**
   * @param {{list: HTMLElement, hint: HTMLElement}} parts
   * @param {object} on
   * @param {() => number} on.temperature
   * @param {(cells: number[] | null) => void} on.preview
   * @param {(cells: number[]) => void} on.take
   * @param {(error: Error) => void} on.failed
   */
  constructor(parts, on) {
    this.parts = parts;
    this.on = on;
    this.latest = new Latest(0, (error) => {
      this.clear();
      on.failed(error);
    });
    this.clear();
  }

  /** @param {import("./drawing.js").Drawing} drawing */
  ask(drawing) {
    this.clear();
    this.parts.hint.textContent = "The model is thinking …";
    this.parts.list.ariaBusy = "true";
    this.latest.run(async (signal) => {
      const seed = Math.floor(Math.random() * SEEDS);
      const wish = { cells: drawing.cells, fixed: fixed(drawing), count: COUNT, seed, particles: PARTICLES };
      const { endings } = await api.complete({ ...wish, temperature: this.on.temperature() }, signal);
      signal.throwIfAborted();
      this.#show(endings);
    });
  }

  /** Send the endings away, and any that are still being made. */
  clear() {
    this.latest.cancel();
    this.#cells = [];
    this.on.preview(null);
    this.parts.list.ariaBusy = "false";
    this.parts.list.replaceChildren(...Array.from({ length: COUNT }, () => document.createElement("li")));
    this.parts.hint.textContent = "Finish keeps what you drew, and draws the rest.";
  }

  /** @param {number} which */
  take(which) {
    const cells = this.#cells[which];
    if (cells) this.on.take(cells);
  }

  get any() {
    return this.#cells.length > 0;
  }

  /** @param {{cells: number[], image: string}[]} endings */
  #show(endings) {
    this.#cells = endings.map(({ cells }) => cells);
    this.parts.list.ariaBusy = "false";
    this.parts.hint.textContent = "Click to take one; Esc sends them away.";
    this.parts.list.replaceChildren(...endings.map(({ cells, image }, i) => this.#ghost(cells, image, i)));
  }

  /** @param {number[]} cells @param {string} image @param {number} i */
  #ghost(cells, image, i) {
    const [entry, button, picture] = [document.createElement("li"), document.createElement("button"), new Image()];
    picture.src = `data:image/png;base64,${image}`;
    picture.alt = `Ending ${i + 1}`;
    picture.draggable = false;
    button.className = "thumb ghost";
    button.title = `Take this ending (Shift+${i + 1})`;
    button.append(picture);
    button.addEventListener("click", () => this.take(i));
    for (const kind of ["pointerenter", "focus"]) button.addEventListener(kind, () => this.on.preview(cells));
    for (const kind of ["pointerleave", "blur"]) button.addEventListener(kind, () => this.on.preview(null));
    entry.append(button);
    return entry;
  }
}

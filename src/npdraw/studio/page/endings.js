/** Endings: ways in which the model would finish the drawing. The person takes one or dismisses them. */

import { Latest, api } from "./api.js";
import { NONE, fixed } from "./drawing.js";

const COUNT = 4;
const [FEW, MANY] = [64, 256]; // particles: many make endings that differ more, and take longer
const QUICK = 1000; // milliseconds that MANY particles may take
const SEEDS = 2 ** 32;
const FIRST = "The picture is made first …";
const THINKING = "The model is thinking …";
const FINISH = "Finish keeps what you drew, and draws the rest.";
const NOTHING = "Done: the model has nothing to add. Erase a part, and it draws there anew, or begin with an empty canvas.";

/** @typedef {{cells: number[], sketch: number[], image: string}} Ending sketch: as the model drew it, before a flow */

export class Endings {
  /** @type {Ending[]} */ #endings = [];
  #particles = MANY;

  /**
   * @param {{list: HTMLElement, hint: HTMLElement, dismiss: HTMLElement}} parts
   * @param {object} on
   * @param {() => number} on.temperature
   * @param {(drawing: import("./drawing.js").Drawing) => object} on.told what a flow needs beside it
   * @param {(cells: number[] | null, image: HTMLImageElement | null) => void} on.preview while one is pointed at
   * @param {(ending: Ending, which: number) => void} on.take
   * @param {(words: string) => void} on.found says what there is to take
   * @param {(error: Error) => void} on.failed
   */
  constructor(parts, on) {
    this.parts = parts;
    this.on = on;
    this.latest = new Latest(0, (error) => {
      this.clear();
      on.failed(error);
    });
    parts.dismiss.addEventListener("click", () => this.clear());
    this.clear();
  }

  /** Say that endings come after the picture: they continue it. */
  wait() {
    this.clear();
    this.parts.hint.textContent = FIRST;
    this.parts.list.ariaBusy = "true";
  }

  /** @param {import("./drawing.js").Drawing} drawing @param {boolean} asked whether to say if there are none */
  ask(drawing, asked) {
    const kept = fixed(drawing);
    if (kept.every(Boolean)) return this.#nothing(asked);
    this.clear();
    this.parts.hint.textContent = THINKING;
    this.parts.list.ariaBusy = "true";
    if (asked) this.on.found(THINKING);
    this.latest.run(async (signal) => {
      const seed = Math.floor(Math.random() * SEEDS);
      const [start, particles] = [performance.now(), this.#particles];
      const wish = { cells: drawing.cells, fixed: kept, count: COUNT, seed, particles };
      const told = { temperature: this.on.temperature(), ...this.on.told(drawing) };
      const { endings } = await api.complete({ ...wish, ...told }, signal);
      signal.throwIfAborted();
      this.#particles = ((performance.now() - start) * MANY) / particles < QUICK ? MANY : FEW;
      const some = endings.some(({ cells }) => cells.some((part, cell) => part !== drawing.cells[cell]));
      if (some) this.#show(endings, drawing);
      else this.#nothing(asked);
    });
  }

  /** Say what the person can do. The words stay until the drawing changes. */
  #nothing(/** @type {boolean} */ asked) {
    this.clear();
    if (!asked) return;
    this.parts.hint.textContent = NOTHING;
    this.on.found(NOTHING);
  }

  /** Remove the endings, and cancel those that are still being made. */
  clear() {
    this.latest.cancel();
    this.#endings = [];
    this.on.preview(null, null);
    this.parts.list.ariaBusy = "false";
    this.parts.list.replaceChildren(...Array.from({ length: COUNT }, () => document.createElement("li")));
    this.parts.hint.textContent = FINISH;
    this.parts.dismiss.hidden = true;
  }

  /** @param {number} which */
  take(which) {
    const ending = this.#endings[which];
    if (ending) this.on.take(ending, which);
  }

  get any() {
    return this.#endings.length > 0;
  }

  /** @param {Ending[]} endings @param {import("./drawing.js").Drawing} drawing */
  #show(endings, drawing) {
    this.#endings = endings;
    /** How many parts an ending adds. @param {Ending} ending */
    const added = ({ cells }) => cells.filter((part, cell) => part !== NONE && drawing.cells[cell] !== part).length;
    this.parts.list.ariaBusy = "false";
    this.parts.hint.textContent = "Choose one to take it.";
    this.parts.dismiss.hidden = false;
    this.parts.list.replaceChildren(...endings.map((ending, i) => this.#ghost(ending, added(ending), i)));
    this.on.found(endings.length === 1 ? "1 ending" : `${endings.length} endings`);
  }

  /** @param {Ending} ending @param {number} added @param {number} i */
  #ghost({ cells, image }, added, i) {
    const [entry, button, picture] = [document.createElement("li"), document.createElement("button"), new Image()];
    picture.src = `data:image/png;base64,${image}`;
    picture.alt = `Ending ${i + 1}, which draws ${added} parts`;
    picture.draggable = false;
    button.className = "thumb ghost";
    button.title = `Take this ending (Shift+${i + 1})`;
    button.append(picture);
    button.addEventListener("click", () => this.take(i));
    for (const kind of ["pointerenter", "focus"]) button.addEventListener(kind, () => this.on.preview(cells, picture));
    for (const kind of ["pointerleave", "blur"]) button.addEventListener(kind, () => this.on.preview(null, null));
    entry.append(button);
    return entry;
  }
}

/** What the page sends to a flow beside a drawing: the picture that the drawing is an edit of, the noise, and how
 * freely the flow may improve on what a person draws. Other decoders get none of this, and the page hides its controls.
 * A flow that has learned no freedom keeps to the drawing, whatever files and links say. */

import { pictured } from "./drawing.js";
import { toBase64 } from "./pixels.js";

const SEEDS = 2 ** 32;

/** @param {string} id */
const field = (id) => /** @type {HTMLInputElement} */ (document.getElementById(id));

export class Flow {
  #freedom = field("freedom");
  #note = field("freedom-note");

  /**
   * @param {import("./api.js").Model} model
   * @param {{noise: (seed: number) => void, freedom: () => void}} on
   */
  constructor({ flow }, on) {
    this.flow = flow;
    field("flow").hidden = field("manual-flow").hidden = field("try-flow").hidden = !flow;
    field("try-plain").hidden = Boolean(flow);
    field("freedom-label").hidden = this.#note.hidden = !flow?.free;
    this.#freedom.addEventListener("input", () => this.#tell());
    this.#freedom.addEventListener("input", on.freedom);
    field("noise").addEventListener("click", () => on.noise(Math.floor(Math.random() * SEEDS)));
    this.#tell();
  }

  /** Say what the slider's value means. */
  #tell() {
    const means = this.freedom ? "the model may change what you draw, to improve on it" : "what you draw is kept";
    this.#note.textContent =
      `Freedom ${this.freedom}: ${means}. Samples and endings use the model's own freedom, ${this.flow?.own}.`;
  }

  get freedom() {
    return this.#freedom.valueAsNumber;
  }

  set freedom(value) {
    if (!this.flow?.free || value === this.freedom) return;
    this.#freedom.value = String(value);
    this.#freedom.dispatchEvent(new Event("input"));
  }

  /** A request's fields for the picture of a drawing or a sketch.
   * @param {{cells: number[], base: import("./drawing.js").Base | null, noise: number, sketch: object | null}} drawing
   */
  wish({ cells, base, noise, sketch }) {
    if (!this.flow) return { cells };
    return { cells, base: sent(base), seed: noise, ...(sketch ? { sketch: true } : { freedom: this.freedom }) };
  }

  /** A request's fields for a file of a drawing, with the picture that is shown.
   * @param {import("./drawing.js").Drawing} drawing */
  file(drawing) {
    return this.flow ? { base: sent(pictured(drawing)), seed: drawing.noise, freedom: this.freedom } : {};
  }

  /** A request's fields for endings of a drawing, with previews. @param {import("./drawing.js").Drawing} drawing */
  endings(drawing) {
    return this.flow ? { base: sent(pictured(drawing)), noise: drawing.noise, ...this.thumbnail } : {};
  }

  /** A request's fields for a thumbnail, which is a preview. */
  get thumbnail() {
    return this.flow ? { evaluations: this.flow.preview } : {};
  }
}

/** @param {import("./drawing.js").Base | null} base */
const sent = (base) => base && { pixels: toBase64(base.pixels), cells: base.cells };

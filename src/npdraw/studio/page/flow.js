/** What the page tells a flow beside a drawing: the noise of its picture, and how freely it may improve on the drawing.
 * Where the model's decoder is none, there is nothing to tell and nothing to see of this; where a flow has learned no
 * freedom, it keeps to its own, whatever files and links say. */

const SEEDS = 2 ** 32;

/** @param {string} id */
const field = (id) => /** @type {HTMLInputElement} */ (document.getElementById(id));

export class Flow {
  #freedom = field("freedom");

  /**
   * @param {import("./api.js").Model} model
   * @param {{noise: (seed: number) => void, freedom: () => void, settled: () => void}} on
   */
  constructor({ flow }, on) {
    this.flow = flow;
    field("flow").hidden = !flow;
    if (flow) this.#freedom.value = String(flow.freedom);
    field("freedom-label").hidden = !flow?.free;
    this.#freedom.addEventListener("input", on.freedom);
    this.#freedom.addEventListener("change", on.settled);
    field("noise").addEventListener("click", () => on.noise(Math.floor(Math.random() * SEEDS)));
  }

  get freedom() {
    return this.#freedom.valueAsNumber;
  }

  set freedom(value) {
    if (!this.flow?.free || value === this.freedom) return;
    this.#freedom.value = String(value);
    this.#freedom.dispatchEvent(new Event("input"));
  }

  /** Beside a drawing whose picture is wanted. @param {import("./drawing.js").Drawing} drawing */
  of({ noise }) {
    return this.flow ? { seed: noise, freedom: this.freedom } : {};
  }

  /** Beside a wish for thumbnails, which are previews. */
  get thumbnails() {
    return this.flow ? { evaluations: this.flow.preview, freedom: this.freedom } : {};
  }
}

/** What the page tells a flow beside a drawing: the noise of its picture, and how freely it may improve on the drawing.
 * Where the model's decoder is none, there is nothing to tell and nothing to see of this; where a flow has learned no
 * freedom, it keeps to its own, whatever files and links say. */

const SEEDS = 2 ** 32;

/** @param {string} id */
const field = (id) => /** @type {HTMLInputElement} */ (document.getElementById(id));

export class Flow {
  #freedom = field("freedom");
  #note = field("freedom-note");

  /**
   * @param {import("./api.js").Model} model
   * @param {{noise: (seed: number) => void, freedom: () => void, settled: () => void}} on
   */
  constructor({ flow }, on) {
    this.flow = flow;
    field("flow").hidden = !flow;
    if (flow) this.#freedom.value = String(flow.freedom);
    field("freedom-label").hidden = this.#note.hidden = !flow?.free;
    this.#freedom.addEventListener("input", () => this.#tell());
    this.#freedom.addEventListener("input", on.freedom);
    this.#freedom.addEventListener("change", on.settled);
    field("noise").addEventListener("click", () => on.noise(Math.floor(Math.random() * SEEDS)));
    this.#tell();
  }

  /** Say what the slider's value means, and why samples made elsewhere may look otherwise. */
  #tell() {
    const own = this.flow?.own;
    const there = own === this.freedom ? "the same" : `the model's own, ${own}: its pictures differ`;
    this.#note.textContent = `Freedom ${this.freedom}: how much the model may make up. npdraw sample takes ${there}.`;
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

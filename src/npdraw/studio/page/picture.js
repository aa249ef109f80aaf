/** The picture that the model makes of the canvas. */

import { Latest, api } from "./api.js";
import { isBlank } from "./drawing.js";

const PATIENCE = 120; // milliseconds for an older picture, once a newer one is wanted
const INVITATION = "Draw, or open a sample: its picture comes here.";
const UNDRAWN = "Nothing is drawn yet.";
const COMING = "The picture comes in a moment.";
const FAILED = "The picture could not be made.";

/** Its canvas says "painted" after every picture. In place of it stand words while nothing is drawn: a flow makes a whole
 * picture of no drawing too, other decoders have learned of none and may make a smear, and nobody drew either. They stay
 * until the first picture, and say that it comes. */
export class Picture {
  /**
   * @param {HTMLCanvasElement} canvas @param {HTMLElement} nothing the words @param {import("./api.js").Model} model
   * @param {(error: Error) => void} failed
   */
  constructor(canvas, nothing, model, failed) {
    this.canvas = canvas;
    this.nothing = nothing;
    canvas.width = model.width;
    canvas.height = model.height;
    const stale = (/** @type {Error} */ error) => {
      canvas.classList.add("stale");
      nothing.textContent = FAILED;
      failed(error);
    };
    this.latest = new Latest(PATIENCE, stale);
    this.full = new Latest(0, stale);
    const { evaluations = 0, preview = 0 } = model.flow ?? {};
    this.preview = preview < evaluations ? { evaluations: preview } : null;
  }

  /** Of a flow a preview first, and then the full picture; a newer wish cancels both.
   * @param {{cells: number[]}} wish what to decode @param {boolean} begins whether these are the first steps of more */
  show(wish, begins) {
    this.full.cancel();
    if (isBlank(wish)) {
      this.latest.cancel();
      this.#reveal(false);
      this.nothing.textContent = begins ? UNDRAWN : INVITATION;
      return;
    }
    this.nothing.textContent = COMING;
    this.latest.run(async (signal) => {
      await this.#paint({ ...wish, ...this.preview }, signal);
      if (this.preview && !this.latest.waits) this.full.run((signal) => this.#paint(wish, signal));
    });
  }

  /** @param {object} wish @param {AbortSignal} signal */
  async #paint(wish, signal) {
    const bitmap = await createImageBitmap(await api.decode(wish, signal));
    signal.throwIfAborted();
    this.canvas.getContext("2d")?.drawImage(bitmap, 0, 0);
    this.canvas.classList.remove("stale");
    this.#reveal(true);
    this.canvas.dispatchEvent(new Event("painted"));
  }

  /** @param {boolean} any whether there is a picture to see */
  #reveal(any) {
    this.canvas.hidden = !any;
    this.nothing.hidden = any;
  }
}

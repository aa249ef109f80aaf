/** The picture that the model makes of the canvas. */

import { Latest, api } from "./api.js";

const PATIENCE = 120; // milliseconds for an older picture, once a newer one is wanted

/** Its canvas says "painted" after every picture. */
export class Picture {
  /**
   * @param {HTMLCanvasElement} canvas @param {import("./api.js").Model} model
   * @param {(error: Error) => void} failed
   */
  constructor(canvas, model, failed) {
    this.canvas = canvas;
    canvas.width = model.width;
    canvas.height = model.height;
    const stale = (/** @type {Error} */ error) => {
      canvas.classList.add("stale");
      failed(error);
    };
    this.latest = new Latest(PATIENCE, stale);
    this.full = new Latest(0, stale);
    const { evaluations = 0, preview = 0 } = model.flow ?? {};
    this.preview = preview < evaluations ? { evaluations: preview } : null;
  }

  /** Of a flow a preview first, and then the full picture; a newer wish cancels both.
   * @param {object} wish what to decode */
  show(wish) {
    this.full.cancel();
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
    this.canvas.dispatchEvent(new Event("painted"));
  }
}

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
    this.latest = new Latest(PATIENCE, (error) => {
      canvas.classList.add("stale");
      failed(error);
    });
  }

  /** @param {number[]} cells */
  show(cells) {
    this.latest.run(async (signal) => {
      const bitmap = await createImageBitmap(await api.decode(cells, signal));
      this.canvas.getContext("2d")?.drawImage(bitmap, 0, 0);
      this.canvas.classList.remove("stale");
      this.canvas.dispatchEvent(new Event("painted"));
    });
  }
}

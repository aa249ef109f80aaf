/** The bank of parts, and the canvases that cells make with it. */

import { NONE } from "./drawing.js";
import { fromBase64 } from "./pixels.js";

export class Bank {
  /** @param {import("./api.js").Model} model @param {{pixels: string, order: number[]}} parts */
  constructor(model, { pixels, order }) {
    const bytes = fromBase64(pixels); // M,C,K,K
    const { grid, channels, parts } = model;
    const area = grid.part ** 2;
    this.model = model;
    this.order = order;
    this.empty = model.inverted ? "#fff" : "#000";
    /** Each part as RGBA. */
    this.parts = Array.from({ length: parts }, (_, m) => {
      const image = new ImageData(grid.part, grid.part);
      for (let i = 0; i < area; i++) {
        for (let c = 0; c < 3; c++) image.data[4 * i + c] = bytes[(m * channels + (c % channels)) * area + i];
        image.data[4 * i + 3] = 255;
      }
      return image;
    });
  }

  /** Draw cells in the canvas's own pixels, cropped to the canvas. Empty cells stay transparent.
   * @param {number[]} cells @param {HTMLCanvasElement} [onto] */
  render(cells, onto = document.createElement("canvas")) {
    const { canvas, grid } = this.model;
    onto.width = canvas.width; // this also clears it
    onto.height = canvas.height;
    const context = /** @type {CanvasRenderingContext2D} */ (onto.getContext("2d", { willReadFrequently: true }));
    cells.forEach((part, cell) => {
      if (part === NONE) return;
      const [x, y] = [cell % grid.columns, Math.floor(cell / grid.columns)];
      context.putImageData(this.parts[part], x * grid.part - grid.left, y * grid.part - grid.top);
    });
    return onto;
  }

  /** Draw cells on the colour of an empty canvas, for a thumbnail. @param {number[]} cells */
  thumbnail(cells) {
    const onto = this.render(cells);
    const context = /** @type {CanvasRenderingContext2D} */ (onto.getContext("2d"));
    context.globalCompositeOperation = "destination-over";
    context.fillStyle = this.empty;
    context.fillRect(0, 0, onto.width, onto.height);
    return onto;
  }

  /** A canvas with one part. @param {number} part */
  picture(part) {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = this.model.grid.part;
    canvas.getContext("2d")?.putImageData(this.parts[part], 0, 0);
    return canvas;
  }
}

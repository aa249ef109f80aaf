/** The bank of parts, and the canvases that cells make with it. */

import { NONE } from "./drawing.js";
import { fromBase64 } from "./pixels.js";

const UNEVEN = 0.15; // difference in lightness of two halves that is worth a word
const HUES = ["red", "orange", "yellow", "green", "green", "cyan", "cyan", "blue", "blue", "purple", "pink", "red"];

/** @param {number[]} rgb from 0 to 1 */
function colourName(rgb) {
  const [most, least] = [Math.max(...rgb), Math.min(...rgb)];
  const light = (most + least) / 2;
  const grey = ["black", "dark grey", "grey", "light grey", "white"][Math.min(4, Math.floor(light * 5))];
  if (most - least < 0.12) return grey;
  const top = rgb.indexOf(most);
  const turn = (rgb[(top + 1) % 3] - rgb[(top + 2) % 3]) / (most - least); // from -1 to 1, a sixth of the circle
  const hue = HUES[Math.round((((top * 2 + turn + 6) % 6) / 6) * 12) % 12];
  return `${light < 0.33 ? "dark " : light > 0.67 ? "light " : ""}${hue}`;
}

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

  /** What a part looks like, in words: its colour, and the side that is lighter. @param {number} part */
  look(part) {
    const { data, width } = this.parts[part];
    const count = data.length / 4;
    const mean = [0, 0, 0];
    let [right, down] = [0, 0]; // how much lighter these halves are than the others
    for (let i = 0; i < count; i++) {
      const rgb = data.subarray(4 * i, 4 * i + 3);
      rgb.forEach((value, c) => (mean[c] += value / 255 / count));
      const light = (rgb[0] + rgb[1] + rgb[2]) / 765;
      right += (light * Math.sign((i % width) - (width - 1) / 2)) / (count / 2);
      down += (light * Math.sign(Math.floor(i / width) - (width - 1) / 2)) / (count / 2);
    }
    const across = Math.abs(right) > Math.abs(down);
    const side = across ? (right > 0 ? "right" : "left") : down > 0 ? "bottom" : "top";
    const even = Math.max(Math.abs(right), Math.abs(down)) < UNEVEN;
    return colourName(mean) + (even ? "" : `, lighter at the ${side}`);
  }

  /** A canvas with one part. @param {number} part */
  picture(part) {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = this.model.grid.part;
    canvas.getContext("2d")?.putImageData(this.parts[part], 0, 0);
    return canvas;
  }
}

/** The pen: freehand on a bitmap of the picture's size, which the server parses into parts while the hand moves. */

import { Latest, api } from "./api.js";
import { put } from "./drawing.js";
import { Stroke } from "./history.js";
import { fromImage } from "./pixels.js";

const PATIENCE = 400; // milliseconds that a parse may still take once a newer one waits

export class Pen {
  /** @type {Stroke | null} */ #stroke = null;
  /** @type {Uint8ClampedArray} */ #before = new Uint8ClampedArray();
  /** @type {{x: number, y: number} | null} */ #from = null;
  /** @type {Uint8ClampedArray | null} */ #unread = null; // the newest bitmap, until it is parsed

  /**
   * @param {import("./bank.js").Bank} bank @param {import("./history.js").History} history
   * @param {(error: Error) => void} failed
   */
  constructor(bank, history, failed) {
    const { model } = bank;
    this.bank = bank;
    this.history = history;
    this.latest = new Latest(PATIENCE, (error) => {
      this.#settle();
      failed(error);
    });
    history.addEventListener("change", () => this.busy || this.load(history.present));
    this.canvas = document.createElement("canvas");
    this.canvas.width = model.width;
    this.canvas.height = model.height;
    this.context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d", { willReadFrequently: true }));
    this.context.lineCap = this.context.lineJoin = "round";
    this.width = 2.5;
    this.colour = model.inverted ? "#000" : "#fff";
  }

  /** Whether the hand is down. */
  get down() {
    return this.#from !== null;
  }

  /** Whether the hand is down, or its last stroke is not parsed yet. */
  get busy() {
    return this.down || this.#unread !== null;
  }

  /** The bitmap of a drawing: what the pen drew, or its parts. @param {import("./drawing.js").Drawing} drawing */
  load(drawing) {
    const { width, height } = this.canvas;
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(this.bank.thumbnail(drawing.cells), 0, 0, width, height);
    if (drawing.ink) this.context.putImageData(new ImageData(new Uint8ClampedArray(drawing.ink), width, height), 0, 0);
  }

  /** @param {{x: number, y: number}} point in fractions of the canvas @param {number} pressure */
  begin(point, pressure) {
    if (!this.busy || !this.#stroke?.alive) {
      this.load(this.history.present);
      this.#stroke = new Stroke(this.history);
      this.#before = this.#pixels();
    } // else the stroke before continues: two quick strokes are one entry of the history
    this.#from = point;
    this.line(point, pressure);
  }

  /** @param {{x: number, y: number}} point @param {number} pressure from 0 to 1 */
  line(point, pressure) {
    const { context, canvas } = this;
    const from = this.#from ?? point;
    context.strokeStyle = this.colour;
    context.lineWidth = this.width * (0.5 + pressure);
    context.beginPath();
    context.moveTo(from.x * canvas.width, from.y * canvas.height);
    context.lineTo(point.x * canvas.width, point.y * canvas.height);
    context.stroke();
    this.#from = point;
    this.#parse();
  }

  end() {
    this.#from = null;
  }

  /** Cells that the stroke touched get the parts that the parser reads there. All others stay. */
  #parse() {
    const [stroke, ink, before] = [/** @type {Stroke} */ (this.#stroke), this.#pixels(), this.#before];
    this.#unread = ink;
    this.latest.run(async (signal) => {
      const { cells } = await api.draw(fromImage(ink, this.bank.model), signal);
      const hit = this.#hit(before, ink);
      stroke.set(put(stroke.base, new Map([...hit].map((cell) => [cell, cells[cell]])), ink));
      if (this.#unread === ink) this.#settle();
    });
  }

  #settle() {
    this.#unread = null;
    if (!this.down) this.load(this.history.present);
  }

  #pixels() {
    return this.context.getImageData(0, 0, this.canvas.width, this.canvas.height).data;
  }

  /** The cells in which two bitmaps differ. @param {Uint8ClampedArray} a @param {Uint8ClampedArray} b */
  #hit(a, b) {
    const { canvas, grid, height, width } = this.bank.model;
    const hit = new Set();
    for (let i = 0; i < a.length; i += 4) {
      if (a[i] === b[i] && a[i + 1] === b[i + 1] && a[i + 2] === b[i + 2]) continue;
      const [x, y] = [(i / 4) % width, Math.floor(i / 4 / width)];
      const column = Math.floor((((x + 0.5) * canvas.width) / width + grid.left) / grid.part);
      const row = Math.floor((((y + 0.5) * canvas.height) / height + grid.top) / grid.part);
      hit.add(row * grid.columns + column);
    }
    return hit;
  }
}

/** The pen: freehand on a bitmap of the picture's size, which the server parses into parts while the hand moves.
 *
 * In colour, black is a part like any other. There the bitmap is transparent where nothing is drawn, and the parser gets
 * the pen's colour in its place: a line across an empty cell makes a part of this colour, not one that is half black. */

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
   * @param {{width: HTMLInputElement, colour: HTMLInputElement}} controls
   * @param {(error: Error) => void} failed
   */
  constructor(bank, history, { width, colour }, failed) {
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
    this.clear = model.channels > 1;
    /** @type {HTMLElement} */ (colour.parentElement).hidden = !this.clear;
    if (this.clear) {
      const cell = (model.grid.part * model.width) / model.canvas.width;
      [width.max, width.value] = [2 * cell, 1.25 * cell].map(String); // wide enough to decide a cell's part
    } else {
      colour.value = model.inverted ? "#000000" : "#ffffff";
    }
    this.controls = { width, colour };
  }

  get width() {
    return this.controls.width.valueAsNumber;
  }

  get colour() {
    return this.controls.colour.value;
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
    const parts = this.clear ? this.bank.render(drawing.cells) : this.bank.thumbnail(drawing.cells);
    this.context.imageSmoothingEnabled = false;
    this.context.clearRect(0, 0, width, height);
    this.context.drawImage(parts, 0, 0, width, height);
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
      const { cells } = await api.draw(fromImage(this.#filled(ink), this.bank.model), signal);
      const hit = this.#hit(before, ink);
      stroke.set(put(stroke.base, new Map([...hit].map((cell) => [cell, cells[cell]])), ink));
      if (this.#unread === ink) this.#settle();
    });
  }

  /** A bitmap with the pen's colour where it is transparent. @param {Uint8ClampedArray} ink */
  #filled(ink) {
    if (!this.clear) return ink;
    const fill = [1, 3, 5].map((at) => parseInt(this.colour.slice(at, at + 2), 16));
    return ink.map((value, i) => (i % 4 === 3 ? 255 : mixed(value, fill[i % 4], ink[i - (i % 4) + 3] / 255)));
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
      if ([0, 1, 2, 3].every((c) => a[i + c] === b[i + c])) continue;
      const [x, y] = [(i / 4) % width, Math.floor(i / 4 / width)];
      const column = Math.floor((((x + 0.5) * canvas.width) / width + grid.left) / grid.part);
      const row = Math.floor((((y + 0.5) * canvas.height) / height + grid.top) / grid.part);
      hit.add(row * grid.columns + column);
    }
    return hit;
  }
}

/** @param {number} above @param {number} below @param {number} alpha of the one above */
const mixed = (above, below, alpha) => Math.round(alpha * above + (1 - alpha) * below);

/** The grid of cells. The page draws it from the parts at once, without a request. */

import { NONE } from "./drawing.js";

/** @typedef {{x: number, y: number}} Point in fractions of the canvas */

/**
 * @typedef {object} View what a board shows
 * @property {number[]} cells
 * @property {HTMLCanvasElement | null} ink what the pen drew
 * @property {number[] | null} ghost cells of a possible drawing, shown faintly where they differ
 * @property {boolean[]} dots which cells are the person's
 * @property {number} cursor a cell, or NONE
 * @property {boolean} faint whether the cursor is shown faintly, as with the pen, which does not need it
 * @property {number} hover a cell under the pointer, or NONE
 * @property {Point[]} lasso the line that is being drawn around cells
 */

export class Board {
  #due = false;
  #layer = document.createElement("canvas");

  /** @param {HTMLCanvasElement} canvas @param {import("./bank.js").Bank} bank */
  constructor(canvas, bank) {
    this.canvas = canvas;
    this.bank = bank;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    /** @type {View} */
    this.view = { cells: [], ink: null, ghost: null, dots: [], cursor: NONE, faint: false, hover: NONE, lasso: [] };
    new ResizeObserver(() => this.show({})).observe(canvas);
  }

  /** @param {Partial<View>} change */
  show(change) {
    Object.assign(this.view, change);
    if (this.#due) return;
    this.#due = true;
    requestAnimationFrame(() => {
      this.#due = false;
      this.#paint();
    });
  }

  /** Where a pointer is, in fractions of the canvas. @param {{clientX: number, clientY: number}} event */
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height };
  }

  /** The cell under a pointer, or NONE. @param {{clientX: number, clientY: number}} event */
  cellAt(event) {
    const { x, y } = this.at(event);
    return x < 0 || x >= 1 || y < 0 || y >= 1 ? NONE : this.cellOf(x, y);
  }

  /** @param {number} x @param {number} y fractions of the canvas */
  cellOf(x, y) {
    const { canvas, grid } = this.bank.model;
    const column = Math.floor((x * canvas.width + grid.left) / grid.part);
    const row = Math.floor((y * canvas.height + grid.top) / grid.part);
    return row * grid.columns + column;
  }

  /** The cells whose middle is inside of a closed line. @param {Point[]} line */
  inside(line) {
    return this.view.cells.flatMap((_, cell) => {
      const [left, top, wide, high] = this.#box(cell);
      const [x, y] = [(left + wide / 2) / this.canvas.width, (top + high / 2) / this.canvas.height];
      const crossed = line.filter((a, i) => {
        const b = line.at(i - 1) ?? a;
        return a.y > y !== b.y > y && x < a.x + ((y - a.y) / (b.y - a.y)) * (b.x - a.x);
      });
      return crossed.length % 2 ? [cell] : [];
    });
  }

  /** A cell's box in pixels of the screen's canvas: x, y, width, height.
   * @param {number} cell @returns {[number, number, number, number]} */
  #box(cell) {
    const { canvas, grid } = this.bank.model;
    const [column, row] = [cell % grid.columns, Math.floor(cell / grid.columns)];
    const [wide, high] = [this.canvas.width / canvas.width, this.canvas.height / canvas.height];
    const [left, right] = [column, column + 1].map((i) => wide * clamp(i * grid.part - grid.left, canvas.width));
    const [top, bottom] = [row, row + 1].map((i) => high * clamp(i * grid.part - grid.top, canvas.height));
    return [left, top, right - left, bottom - top];
  }

  #paint() {
    const { canvas, context, view, bank } = this;
    const ratio = devicePixelRatio;
    canvas.width = Math.max(1, Math.round(canvas.clientWidth * ratio));
    canvas.height = Math.max(1, Math.round(canvas.clientHeight * ratio));
    context.imageSmoothingEnabled = false;
    context.fillStyle = bank.empty;
    context.fillRect(0, 0, canvas.width, canvas.height);
    if (bank.model.channels > 1) this.#hatch(ratio);
    this.#lay(view.cells, 1);
    if (view.ink) {
      context.globalCompositeOperation = bank.model.inverted ? "darken" : "lighten";
      context.globalAlpha = 0.55;
      context.drawImage(view.ink, 0, 0, canvas.width, canvas.height);
      context.globalCompositeOperation = "source-over";
    }
    const { ghost } = view;
    if (ghost) this.#lay(ghost.map((part, cell) => (part === view.cells[cell] ? NONE : part)), 0.5);
    context.globalAlpha = 1;
    this.#rule(ratio);
    view.dots.forEach((own, cell) => own && view.cells[cell] !== NONE && this.#dot(cell, ratio));
    if (view.hover !== NONE) this.#outline(view.hover, ratio, "rgba(128, 150, 220, 0.9)");
    const [line, colour] = view.faint ? [1, "rgba(91, 131, 255, 0.6)"] : [2, "#5b83ff"];
    if (view.cursor !== NONE) this.#outline(view.cursor, line * ratio, colour);
    for (const [wide, colour] of /** @type {const} */ ([[4, "#fff"], [2, "#3a5bc7"]])) this.#draw(view.lasso, wide * ratio, colour);
  }

  /** @param {number[]} cells @param {number} alpha */
  #lay(cells, alpha) {
    this.context.globalAlpha = alpha;
    this.context.drawImage(this.bank.render(cells, this.#layer), 0, 0, this.canvas.width, this.canvas.height);
  }

  /** Mark the cells that nobody drew, in models for which black is a colour like any other. @param {number} ratio */
  #hatch(ratio) {
    const { context } = this;
    const { width, height } = this.canvas;
    context.lineWidth = ratio;
    context.strokeStyle = "rgba(128, 128, 128, 0.55)";
    context.beginPath();
    for (let x = -height; x < width; x += 8 * ratio) {
      context.moveTo(x, height);
      context.lineTo(x + height, 0);
    }
    context.stroke();
  }

  /** @param {number} ratio */
  #rule(ratio) {
    const { grid } = this.bank.model;
    const { width, height } = this.canvas;
    this.context.fillStyle = "rgba(128, 128, 128, 0.32)";
    for (let i = 1; i < grid.columns; i++) this.context.fillRect(Math.round(this.#box(i)[0]), 0, ratio, height);
    for (let i = 1; i < grid.rows; i++)
      this.context.fillRect(0, Math.round(this.#box(i * grid.columns)[1]), width, ratio);
  }

  /** @param {number} cell @param {number} ratio */
  #dot(cell, ratio) {
    const [x, y] = this.#box(cell);
    this.context.fillStyle = "#5b83ff";
    this.context.beginPath();
    this.context.arc(x + 6 * ratio, y + 6 * ratio, 2 * ratio, 0, 2 * Math.PI);
    this.context.fill();
  }

  /** @param {Point[]} points @param {number} line @param {string} colour */
  #draw(points, line, colour) {
    const { context } = this;
    context.lineWidth = line;
    context.strokeStyle = colour;
    context.beginPath();
    for (const { x, y } of points) context.lineTo(x * this.canvas.width, y * this.canvas.height);
    context.stroke();
  }

  /** @param {number} cell @param {number} line @param {string} colour */
  #outline(cell, line, colour) {
    const [x, y, width, height] = this.#box(cell);
    this.context.lineWidth = line;
    this.context.strokeStyle = colour;
    this.context.strokeRect(x + line / 2, y + line / 2, width - line, height - line);
  }
}

/** @param {number} value @param {number} most */
const clamp = (value, most) => Math.max(0, Math.min(most, value));

/** What the pointer does on the board, tool by tool: mouse, finger and stylus alike. */

import { NONE, move, put } from "./drawing.js";
import { Stroke } from "./history.js";

/** @typedef {"pen" | "part" | "erase" | "region"} Tool */

export class Hand {
  /** @type {Tool} */ tool = "pen";
  /** @type {Stroke | null} */ #stroke = null;
  /** @type {Map<number, number>} */ #painted = new Map();
  #from = NONE; // the cell whose part is being moved
  /** @type {import("./board.js").Point[] | null} */ #lasso = null; // the line around cells, while it is drawn
  #around = /** @type {HTMLInputElement} */ (document.getElementById("lasso")); // whether to draw around cells

  /**
   * @param {import("./board.js").Board} board @param {import("./history.js").History} history
   * @param {import("./palette.js").Palette} palette @param {import("./pen.js").Pen} pen
   * @param {{second: () => number[] | null, begin: () => void, cursor: (cell: number) => void, lacking: () => void}} on
   */
  constructor(board, history, palette, pen, on) {
    this.board = board;
    this.history = history;
    this.palette = palette;
    this.pen = pen;
    this.on = on;
    const { canvas } = board;
    canvas.addEventListener("pointerdown", (event) => event.button === 0 && event.isPrimary && this.#down(event));
    canvas.addEventListener("pointermove", (event) => event.isPrimary && this.#move(event));
    canvas.addEventListener("pointerup", (event) => event.isPrimary && this.#up(event));
    canvas.addEventListener("pointercancel", () => this.#end());
    canvas.addEventListener("pointerleave", () => board.show({ hover: NONE, ghost: null }));
  }

  /** Use the tool on a cell, as a separate stroke. @param {number} cell */
  use(cell) {
    this.begin();
    if (this.tool === "pen") this.paint(cell, this.palette.selected);
    else this.touch(cell);
  }

  /** Start a stroke of cells. */
  begin() {
    this.on.begin();
    this.#stroke = new Stroke(this.history);
    this.#painted = new Map();
  }

  /** Continue the stroke: put the selected part, nothing, or B's parts into cells, as the tool says.
   * @param {...number} cells */
  touch(...cells) {
    const second = this.on.second();
    if (this.tool === "region" && !second) return this.on.lacking();
    const part = this.tool === "erase" ? NONE : this.palette.selected;
    this.#put(cells.map((cell) => [cell, this.tool === "region" && second ? second[cell] : part]));
  }

  /** Put a part into a cell of the stroke. @param {number} cell @param {number} part */
  paint(cell, part) {
    this.#put([[cell, part]]);
  }

  /** The cursor follows and says what its cell then has. @param {[number, number][]} parts cells and their parts */
  #put(parts) {
    const stroke = /** @type {Stroke} */ (this.#stroke);
    for (const [cell, part] of parts) this.#painted.set(cell, part);
    stroke.set(put(stroke.base, this.#painted));
    this.on.cursor(parts[parts.length - 1][0]);
  }

  /** @param {PointerEvent} event */
  #down(event) {
    const cell = this.board.cellAt(event);
    const part = this.history.present.cells[cell];
    this.board.canvas.setPointerCapture(event.pointerId);
    this.on.cursor(cell);
    if (event.altKey) {
      if (part !== NONE) this.palette.pick(part);
      return;
    }
    this.begin();
    this.board.show({ hover: NONE, ghost: null, faint: this.tool === "pen" });
    if (this.tool === "pen") this.pen.begin(this.board.at(event), pressure(event));
    else if (this.tool === "part" && part !== NONE) this.#from = cell;
    else if (this.tool !== "part" && this.#around.checked) this.#lasso = [this.board.at(event)];
    else this.touch(cell);
  }

  /** @param {PointerEvent} event */
  #move(event) {
    const cell = this.board.cellAt(event);
    if (this.pen.down) {
      for (const point of event.getCoalescedEvents()) this.pen.line(this.board.at(point), pressure(point));
      this.board.show({ hover: NONE, ghost: null });
    } else if (this.#lasso) {
      this.#lasso.push(...event.getCoalescedEvents().map((point) => this.board.at(point)));
      this.board.show({ lasso: this.#lasso, hover: NONE, ghost: null });
    } else if (this.#from !== NONE) {
      const { present } = this.history;
      const stays = cell === NONE || cell === this.#from;
      this.board.show({ hover: cell, cells: stays ? present.cells : move(present, this.#from, cell).cells });
    } else if (this.#stroke && event.buttons && cell !== NONE && this.tool !== "part") {
      this.touch(cell);
      this.board.show({ hover: NONE });
    } else {
      this.board.show({ hover: this.tool === "pen" ? NONE : cell, ghost: this.#promise(cell) });
    }
  }

  /** The cells after a click here, or null if a click puts nothing. @param {number} cell */
  #promise(cell) {
    const { cells } = this.board.view;
    /** @type {Partial<Record<Tool, number>>} */
    const parts = { part: this.palette.selected, region: this.on.second()?.[cell] };
    const part = parts[this.tool];
    const moves = this.tool === "part" && cells[cell] !== NONE;
    return cell === NONE || part === undefined || moves ? null : cells.with(cell, part);
  }

  /** @param {PointerEvent} event */
  #up(event) {
    const [from, to] = [this.#from, this.board.cellAt(event)];
    if (this.#lasso) {
      const cells = this.board.inside(this.#lasso);
      if (cells.length) this.touch(...cells);
      else if (to !== NONE) this.touch(to); // a click, or a line around no cell's middle
    }
    this.#end();
    if (from === NONE) return;
    this.board.show({ cells: this.history.present.cells });
    if (to === NONE) return;
    if (to === from) return this.use(to);
    this.history.push(move(this.history.present, from, to));
    this.on.cursor(to);
  }

  #end() {
    this.pen.end();
    this.#stroke = null;
    this.#from = NONE;
    if (this.#lasso) this.board.show({ lasso: [] });
    this.#lasso = null;
  }
}

/** How hard a stylus presses; 0.5 for anything else. @param {PointerEvent} event */
const pressure = (event) => (event.pointerType === "pen" ? event.pressure : 0.5);

/** Image B, whose cells can be painted into the drawing. */

import { Board } from "./board.js";
import { NONE } from "./drawing.js";

/** @param {string} id */
const element = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

export class Second {
  /** @type {import("./drawing.js").Drawing | null} */ drawing = null;

  /**
   * @param {import("./bank.js").Bank} bank
   * @param {Record<"open" | "copy" | "swap" | "begin", () => void> & {paint: (cell: number) => void}} on
   */
  constructor(bank, on) {
    const canvas = /** @type {HTMLCanvasElement} */ (element("second-board"));
    this.board = new Board(canvas, bank);
    element("second-open").addEventListener("click", on.open);
    element("second-copy").addEventListener("click", on.copy);
    element("second-swap").addEventListener("click", on.swap);
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      on.begin();
      on.paint(this.board.cellAt(event));
    });
    canvas.addEventListener("pointermove", (event) => {
      const cell = this.board.cellAt(event);
      this.board.show({ hover: cell });
      if (canvas.hasPointerCapture(event.pointerId) && cell !== NONE) on.paint(cell);
    });
    canvas.addEventListener("pointerleave", () => this.board.show({ hover: NONE }));
  }

  get cells() {
    return this.drawing?.cells ?? null;
  }

  /** @param {import("./drawing.js").Drawing} drawing */
  set(drawing) {
    this.drawing = drawing;
    this.refresh();
    for (const id of ["second-frame", "second-swap"]) element(id).hidden = false;
    this.#reveal();
  }

  /** Show the cells again: a sample's drawing changes once, when its picture is ready. */
  refresh() {
    if (this.cells) this.board.show({ cells: this.cells });
  }

  /** @param {boolean} seen */
  show(seen) {
    element("second").hidden = !seen;
    this.#reveal();
  }

  /** Scroll to image B, which may be below the edge of a narrow screen. */
  #reveal() {
    element("second").scrollIntoView({ block: "nearest" });
  }
}

/** Image B, whose cells can be painted into the drawing. */

import { Board } from "./board.js";
import { NONE } from "./drawing.js";

/** @param {string} id */
const element = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

export class Second {
  /** @type {number[] | null} */ cells = null;
  noise = 0;

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

  /** @param {number[]} cells @param {number} noise */
  set(cells, noise) {
    this.cells = cells;
    this.noise = noise;
    this.board.show({ cells });
    for (const id of ["second-frame", "second-swap"]) element(id).hidden = false;
    this.#reveal();
  }

  /** @param {boolean} seen */
  show(seen) {
    element("second").hidden = !seen;
    this.#reveal();
  }

  /** A narrow screen may have it below its edge. */
  #reveal() {
    element("second").scrollIntoView({ block: "nearest" });
  }
}

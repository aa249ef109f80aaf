/** The drawings so far: undo, redo, and a jump to any of them. */

import { same, settle } from "./drawing.js";

/** @typedef {import("./drawing.js").Drawing} Drawing */

const LENGTH = 100;

/** Dispatches "change" whenever the present drawing changes. */
export class History extends EventTarget {
  #index = 0;

  /** @param {Drawing} first */
  constructor(first) {
    super();
    this.drawings = [first];
  }

  /** Take up drawings from before. @param {Drawing[]} drawings @param {number} index */
  restore(drawings, index) {
    this.drawings = drawings;
    this.jump(index);
  }

  get index() {
    return this.#index;
  }

  get present() {
    return this.drawings[this.#index];
  }

  /** Add a new present drawing. What could be redone is lost. @param {Drawing} drawing */
  push(drawing) {
    if (same(drawing, this.present) && !drawing.ink) return;
    this.drawings = [...this.drawings.slice(0, this.#index + 1), drawing].slice(-LENGTH);
    this.jump(this.drawings.length - 1);
  }

  /** Replace the present drawing: a stroke is one entry, however long it is. @param {Drawing} drawing */
  amend(drawing) {
    this.drawings[this.#index] = drawing;
    this.jump(this.#index);
  }

  /** Settle all drawings of a sketch, whose picture is ready.
   * @param {import("./drawing.js").Sketch} sketch @param {Uint8Array} pixels @param {number[]} parse */
  settle(sketch, pixels, parse) {
    for (const drawing of this.drawings) if (drawing.sketch === sketch) settle(drawing, pixels, parse);
    this.jump(this.#index);
  }

  /** @param {number} index */
  jump(index) {
    if (index < 0 || index >= this.drawings.length) return;
    this.#index = index;
    this.dispatchEvent(new Event("change"));
  }

  undo() {
    this.jump(this.#index - 1);
  }

  redo() {
    this.jump(this.#index + 1);
  }
}

/** A stroke of the hand. Its first drawing is a new entry of the history, and its later ones replace that entry. */
export class Stroke {
  /** @type {Drawing | null} */ #last = null;

  /** @param {History} history */
  constructor(history) {
    this.history = history;
    this.base = history.present;
  }

  /** Whether the present drawing is still this stroke's. The stroke may have been undone meanwhile. */
  get alive() {
    return this.history.present === (this.#last ?? this.base);
  }

  /** @param {Drawing} drawing */
  set(drawing) {
    if (!this.alive) return;
    if (this.#last) this.history.amend(drawing);
    else this.history.push(drawing);
    this.#last = this.history.present === this.base ? null : this.history.present;
  }
}

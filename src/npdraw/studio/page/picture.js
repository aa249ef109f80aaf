/** The picture that the model makes of the canvas. */

import { Latest, api } from "./api.js";
import { isBlank } from "./drawing.js";
import { toImage } from "./pixels.js";

/** @typedef {import("./drawing.js").Drawing} Drawing */

const PATIENCE = 120; // milliseconds that an older picture may still take once a newer one waits
const REST = 300; // milliseconds without a change after which the hand rests
const INVITATION = "Draw, or open a sample. The picture appears here.";
const UNDRAWN = "Nothing is drawn yet.";
const COMING = "The picture comes in a moment.";
const FAILED = "The picture could not be made.";

/** The canvas dispatches "painted" after every picture. While nothing is drawn, the page shows words instead: a flow
 * would make a whole picture of an empty drawing too. Other decoders have not learned from empty drawings and may make
 * a smear. But nobody drew these pictures. The words stay until the first picture, and say that it comes. */
export class Picture {
  /** @type {{sketch: import("./drawing.js").Sketch} | null} */ #opening = null; // whose picture is being made
  #changed = -REST; // when a picture was last asked for
  /** @type {Uint8Array | null} */ shown = null; // the picture, or null for words

  /**
   * @param {HTMLCanvasElement} canvas @param {HTMLElement} nothing the words @param {import("./api.js").Model} model
   * @param {object} on
   * @param {(drawing: {cells: number[], base: any, noise: number, sketch: any}) => object} on.wish what to request
   * @param {(drawing: Drawing, pixels: Uint8Array, signal: AbortSignal) => Promise<void>} on.made a flow's full picture
   * @param {(error: Error) => void} on.failed
   */
  constructor(canvas, nothing, model, on) {
    this.canvas = canvas;
    this.nothing = nothing;
    this.model = model;
    this.on = on;
    canvas.width = model.width;
    canvas.height = model.height;
    const stale = (/** @type {Error} */ error) => {
      canvas.classList.add("stale");
      nothing.textContent = FAILED;
      on.failed(error);
    };
    this.latest = new Latest(model.flow ? Infinity : PATIENCE, stale);
    this.full = new Latest(0, stale);
  }

  /** Whether a picture is being made. */
  get busy() {
    return this.latest.busy || this.full.busy;
  }

  /** The picture of the drawing that was to be shown last, or null if it is not ready. */
  get current() {
    return this.busy || this.canvas.classList.contains("stale") ? null : this.shown;
  }

  /** Show a drawing's picture. If it is ready, it is painted at once. Else a flow makes a preview, then the full one.
   * While the drawing changes, it makes pictures of even fewer evaluations. Each of these is shown before the next one
   * is begun, so that a moving hand sees pictures. A newer request cancels a full picture, except for that of a sketch
   * that is being edited: the edits wait for it.
   * @param {Drawing} drawing @param {number[] | null} steps cells of its first steps, if it is not shown whole */
  show(drawing, steps) {
    if (!drawing.sketch || drawing.sketch !== this.#opening?.sketch) {
      this.full.cancel();
      this.#opening = null;
    }
    const shown = steps ? { ...drawing, cells: steps, base: null, pixels: null, sketch: null } : drawing;
    if (isBlank(shown)) {
      this.latest.cancel();
      this.shown = null;
      this.#reveal();
      this.nothing.textContent = steps ? UNDRAWN : INVITATION;
      return;
    }
    if (shown.pixels) {
      this.latest.cancel();
      return this.#paint(shown.pixels);
    }
    this.nothing.textContent = COMING;
    const wish = this.on.wish(shown);
    const { flow } = this.model;
    const quick = flow ? this.#quick(flow) : [{}];
    this.latest.run(async (signal) => {
      for (const how of quick) {
        this.#paint(await api.pixels({ ...wish, ...how }, signal), signal);
        if (this.latest.waits) return;
      }
      if (!flow || this.#opening) return;
      if (steps) this.full.run(async (signal) => this.#paint(await api.pixels(wish, signal), signal));
      else this.#make(drawing);
    });
  }

  /** Show the picture that the present one is an edit of, or the present one again. @param {Uint8Array} pixels */
  compare(pixels) {
    if (!this.busy) this.#paint(pixels);
  }

  /** Show an image for a moment, or the picture again. @param {HTMLImageElement | null} image */
  peek(image) {
    if (image) this.canvas.getContext("2d")?.drawImage(image, 0, 0);
    else if (this.shown) this.#put(this.shown);
    this.#reveal(image !== null || this.shown !== null);
  }

  /** How a flow makes the pictures before the full one. @param {import("./api.js").Flow} flow */
  #quick({ evaluations, preview, glance }) {
    const now = performance.now();
    const moves = now - this.#changed < REST;
    this.#changed = now;
    const counts = moves ? [glance, preview] : [preview];
    return counts.filter((n) => n < evaluations).map((n) => ({ evaluations: n }));
  }

  /** @param {Drawing} drawing */
  #make(drawing) {
    const { sketch } = drawing;
    const wish = this.on.wish(sketch ? { ...sketch, sketch } : drawing);
    const opening = (this.#opening = sketch && { sketch });
    this.full.run(async (signal) => {
      try {
        const pixels = await api.pixels(wish, signal);
        if (!sketch) this.#paint(pixels, signal);
        await this.on.made(drawing, pixels, signal);
      } finally {
        if (this.#opening === opening) this.#opening = null;
      }
    });
  }

  /** @param {Uint8Array} pixels @param {AbortSignal} [signal] */
  #paint(pixels, signal) {
    signal?.throwIfAborted();
    this.shown = pixels;
    this.#put(pixels);
    this.canvas.classList.remove("stale");
    this.#reveal();
    this.canvas.dispatchEvent(new Event("painted"));
  }

  /** @param {Uint8Array} pixels */
  #put(pixels) {
    this.canvas.getContext("2d")?.putImageData(toImage(pixels, this.model), 0, 0);
  }

  /** @param {boolean} any whether there is a picture to show */
  #reveal(any = this.shown !== null) {
    this.canvas.hidden = !any;
    this.nothing.hidden = any;
  }
}

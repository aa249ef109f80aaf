/** Six other pictures of a drawing, large and side by side, to choose from: what the person edited is made anew with other
 * noise, or the whole picture if nothing is edited. They are previews, as those of endings are. */

import { Latest, api } from "./api.js";
import { renewed } from "./drawing.js";

const COUNT = 6;
const SEEDS = 2 ** 32;

/** @param {string} id */
const element = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** @typedef {import("./drawing.js").Drawing} Drawing */

export class Others {
  #dialog = /** @type {HTMLDialogElement} */ (element("others"));
  #list = element("others-list");

  /** @param {import("./flow.js").Flow} flow @param {(drawing: Drawing) => void} take
   * @param {(error: Error) => void} failed */
  constructor(flow, take, failed) {
    this.flow = flow;
    this.take = take;
    this.latest = new Latest(0, (error) => {
      this.#dialog.close();
      failed(error);
    });
    this.#dialog.addEventListener("close", () => this.latest.cancel());
  }

  /** @param {Drawing} drawing */
  show(drawing) {
    const drawings = Array.from({ length: COUNT }, () => renewed(drawing, Math.floor(Math.random() * SEEDS)));
    const buttons = drawings.map((other, i) => this.#button(other, i));
    this.#list.replaceChildren(
      ...buttons.map((button) => {
        const entry = document.createElement("li");
        entry.append(button);
        return entry;
      }),
    );
    this.#list.ariaBusy = "true";
    this.#dialog.showModal();
    this.latest.run(async (signal) => {
      for (const [i, other] of drawings.entries()) {
        const image = await createImageBitmap(await api.decode({ ...this.flow.wish(other), ...this.flow.thumbnail }, signal));
        const canvas = /** @type {HTMLCanvasElement} */ (buttons[i].firstChild);
        [canvas.width, canvas.height] = [image.width, image.height];
        canvas.getContext("2d")?.drawImage(image, 0, 0);
        buttons[i].disabled = false;
      }
      this.#list.ariaBusy = "false";
    });
  }

  /** @param {Drawing} other @param {number} i */
  #button(other, i) {
    const button = document.createElement("button");
    button.className = "thumb";
    button.ariaLabel = button.title = `Take picture ${i + 1} of ${COUNT}`;
    button.disabled = true;
    button.append(document.createElement("canvas"));
    button.addEventListener("click", () => {
      this.#dialog.close();
      this.take(other);
    });
    return button;
  }
}

/** A gallery of one's own: drawings that a person keeps, each with its picture and a name. They stay in this browser, as
 * the work under way does, until the person removes them. */

import { toImage } from "./pixels.js";
import { complain, say, speak } from "./words.js";

/** @typedef {import("./drawing.js").Drawing} Drawing */

/**
 * @typedef {object} Kept
 * @property {number} [id] given by the database
 * @property {string} weights of the model
 * @property {string} name
 * @property {Drawing} drawing
 * @property {Uint8Array | null} picture
 * @property {number} freedom
 */

/** @param {string} id */
const element = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

export class Works {
  #list = element("works");

  /** @param {import("./work.js").Work} work @param {import("./bank.js").Bank} bank
   * @param {{keep: () => void, open: (kept: Kept) => void}} on */
  constructor(work, bank, on) {
    this.work = work;
    this.bank = bank;
    this.on = on;
    element("own").hidden = !work.database;
    element("keep").addEventListener("click", on.keep);
    addEventListener("visibilitychange", () => document.hidden || this.show()); // another tab may have changed them
    this.show();
  }

  /** @param {Drawing} drawing @param {Uint8Array | null} picture @param {number} freedom */
  async keep(drawing, picture, freedom) {
    const name = drawing.seed === null ? `Drawing ${this.#list.children.length + 1}` : `Seed ${drawing.seed}`;
    try {
      await this.work.keep({ weights: this.bank.model.weights, name, drawing, picture, freedom });
    } catch {
      return say("This browser has no room for it. Save it as a PNG.", "trouble");
    }
    await this.show();
    const field = this.#list.querySelector("input");
    if (matchMedia("(pointer: fine)").matches) field?.select();
    speak(`Kept as ${name}`);
  }

  /** Show all of this model, the newest first. */
  async show() {
    const works = await this.work.works().catch((error) => (complain(error), []));
    this.#list.replaceChildren(...works.reverse().map((kept) => this.#entry(kept)));
    element("own-hint").hidden = works.length > 0;
  }

  /** @param {Kept} kept */
  #entry(kept) {
    const [entry, open, field, remove] = ["li", "button", "input", "button"].map((tag) => document.createElement(tag));
    const name = /** @type {HTMLInputElement} */ (field);
    const tell = () => {
      open.ariaLabel = open.title = `Open ${kept.name}`;
      remove.ariaLabel = remove.title = `Remove ${kept.name}`;
    };
    open.className = "thumb";
    open.append(this.#thumbnail(kept));
    open.addEventListener("click", () => this.on.open(kept));
    [name.type, name.value, name.maxLength, name.ariaLabel] = ["text", kept.name, 60, "Name of this work"];
    name.addEventListener("change", () => {
      kept.name = name.value = name.value.trim() || kept.name;
      tell();
      this.work.keep(kept).catch(complain);
    });
    remove.className = "bare small";
    remove.textContent = "×";
    remove.addEventListener("click", async () => {
      if (!confirm(`Remove “${kept.name}”?`)) return;
      await this.work.remove(/** @type {number} */ (kept.id)).catch(complain);
      await this.show();
      element("keep").focus();
    });
    tell();
    entry.append(open, name, remove);
    return entry;
  }

  /** @param {Kept} kept */
  #thumbnail({ drawing, picture }) {
    if (!picture) return this.bank.thumbnail(drawing.cells);
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [this.bank.model.width, this.bank.model.height];
    canvas.getContext("2d")?.putImageData(toImage(picture, this.bank.model), 0, 0);
    return canvas;
  }
}

/** Links to a drawing: the part of the address after the `#`. */

import { fresh, fromFragment, toFragment } from "./drawing.js";
import { complain, say } from "./words.js";

/** @typedef {import("./drawing.js").Drawing} Drawing */

export class Link {
  /** @type {Drawing | null} */ #linked = null; // the drawing of the address's fragment

  /** @param {import("./api.js").Model} model @param {import("./history.js").History} history
   * @param {import("./flow.js").Flow} flow */
  constructor(model, history, flow) {
    this.model = model;
    this.history = history;
    this.flow = flow;
    history.addEventListener("change", () => this.#linked && this.#linked !== history.present && this.#set(""));
    addEventListener("hashchange", () => this.open());
  }

  /** Whether the address has a link, which may be damaged. */
  get any() {
    return location.hash.startsWith("#d=");
  }

  open() {
    try {
      const link = fromFragment(location.hash, this.model);
      if (!link) return;
      this.history.push(fresh(link.cells, { kept: true, noise: link.noise }));
      this.#linked = this.history.present;
      this.flow.freedom = link.freedom;
    } catch (error) {
      complain(/** @type {Error} */ (error));
    }
  }

  async copy() {
    this.#set(toFragment(this.history.present, this.model, this.flow.freedom));
    if (matchMedia("(pointer: coarse)").matches && navigator.share)
      return navigator.share({ title: document.title, url: location.href }).catch(() => {}); // or the person changed their mind
    const copied = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
    const where = copied ? "The link is copied. It contains" : "The link is in the address bar. It contains";
    const what = this.model.flow
      ? "the drawing, and the picture is made anew from it. A PNG keeps the picture."
      : "the drawing itself.";
    say(`${where} ${what}`);
  }

  /** A fragment in the address is of the drawing that is shown. @param {string} fragment "" for none */
  #set(fragment) {
    this.#linked = fragment ? this.history.present : null;
    history.replaceState(null, "", fragment || location.pathname + location.search);
  }
}

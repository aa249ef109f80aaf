/** The bank's parts, to pick and to drag. The bar under each shows how likely it is in the selected cell. */

import { percent } from "./words.js";

const SLACK = 6; // pixels that a pointer may move before it drags
const KEYS = 9; // the likeliest parts have keys

/** Dispatches "pick" when the person picks a part. While one is dragged, it calls `drag` and `drop`. */
export class Palette extends EventTarget {
  selected = 0;
  #picked = false;
  #grasped = false;
  /** @type {number[]} */ likely = [];

  /**
   * @param {HTMLElement} list @param {import("./bank.js").Bank} bank
   * @param {{drag: (event: PointerEvent | null) => void, drop: (event: PointerEvent) => void}} onto
   */
  constructor(list, bank, onto) {
    super();
    this.list = list;
    this.bank = bank;
    this.onto = onto;
    this.alike = true;
    this.options = bank.parts.map((_, part) => this.#option(part));
    this.#arrange();
    this.select(bank.order[0]);
    list.addEventListener("keydown", (event) => this.#key(event));
  }

  /** @param {number} part */
  select(part) {
    this.options[this.selected].ariaSelected = "false";
    this.selected = part;
    this.options[part].ariaSelected = "true";
    this.list.setAttribute("aria-activedescendant", this.options[part].id);
  }

  /** @param {number} part */
  pick(part) {
    this.#picked = true;
    this.select(part);
    this.options[part].scrollIntoView({ block: "nearest", inline: "nearest" });
    this.dispatchEvent(new Event("pick"));
  }

  /** Returns what was picked, in words. @param {number} rank 0 is the likeliest */
  pickLikely(rank) {
    if (rank >= this.likely.length) return "There are fewer parts";
    this.pick(this.likely[rank]);
    const { ariaLabel, title } = this.options[this.selected];
    return `${ariaLabel}${title.slice(title.indexOf(":"))}`;
  }

  /** @param {boolean} alike by likeness, or by what is likely in the selected cell */
  sort(alike) {
    this.alike = alike;
    this.#arrange();
    this.list.scrollTo(0, 0);
  }

  /** @param {number[]} what a probability for each part */
  heat(what) {
    const most = Math.max(...what);
    this.likely = what.map((_, part) => part).sort((a, b) => what[b] - what[a]);
    this.likely.forEach((part, rank) => {
      const option = this.options[part];
      const heat = (most > 0 ? Math.sqrt(what[part] / most) : 0).toFixed(2);
      const key = rank < KEYS ? String(rank + 1) : "";
      const title = `Part ${part}: ${percent(what[part])} here` + (key && ` (${key})`);
      // what stays is not written again: a style or a name that is set costs time, for hundreds of parts
      if (option.style.getPropertyValue("--heat") !== heat) option.style.setProperty("--heat", heat);
      if (option.dataset.key !== key) option.dataset.key = key;
      if (option.title !== title) option.title = title;
    });
    if (!this.alike && !this.#grasped) this.#arrange(); // a dragged part must not move away from under the pointer
    if (!this.#picked) this.select(this.likely[0]);
  }

  #arrange() {
    const order = this.alike || !this.likely.length ? this.bank.order : this.likely;
    this.list.replaceChildren(...order.map((part) => this.options[part]));
  }

  /** @param {number} part */
  #option(part) {
    const option = document.createElement("div");
    option.id = `part-${part}`;
    option.role = "option";
    option.ariaLabel = `Part ${part}, ${this.bank.look(part)}`;
    option.ariaSelected = "false";
    option.append(this.bank.picture(part));
    option.addEventListener("pointerdown", (event) => this.#grasp(event, part));
    return option;
  }

  /** A click picks the part, a drag carries it. @param {PointerEvent} start @param {number} part */
  #grasp(start, part) {
    if (start.button !== 0) return;
    const option = this.options[part];
    const carried = this.bank.picture(part);
    carried.className = "carried";
    option.setPointerCapture(start.pointerId);
    this.#grasped = true;
    const stop = new AbortController();
    const end = () => {
      stop.abort();
      this.#grasped = false;
      carried.remove();
      this.onto.drag(null);
    };
    /** @param {string} kind @param {(event: PointerEvent) => void} what */
    const on = (kind, what) =>
      option.addEventListener(kind, (event) => what(/** @type {PointerEvent} */ (event)), { signal: stop.signal });
    on("pointermove", (event) => {
      const far = Math.hypot(event.clientX - start.clientX, event.clientY - start.clientY);
      if (!carried.isConnected && far < SLACK) return;
      if (!carried.isConnected) this.pick(part);
      document.body.append(carried);
      carried.style.transform = `translate(${event.clientX}px, ${event.clientY}px) translate(-50%, -50%)`;
      this.onto.drag(event);
    });
    on("pointerup", (event) => {
      if (carried.isConnected) this.onto.drop(event);
      else this.pick(part);
      end();
    });
    on("pointercancel", end);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const shown = [...this.list.children];
    const at = shown.indexOf(this.options[this.selected]);
    const to = {
      ArrowLeft: at - 1,
      ArrowRight: at + 1,
      ArrowUp: this.#beside(at, -1),
      ArrowDown: this.#beside(at, 1),
      Home: 0,
      End: shown.length - 1,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    if (shown[to]) this.pick(this.options.indexOf(/** @type {HTMLDivElement} */ (shown[to])));
  }

  /** The option above (-1) or below (1) another, as they are on the screen. @param {number} at @param {number} way */
  #beside(at, way) {
    const boxes = [...this.list.children].map((option) => option.getBoundingClientRect());
    const { left, top, height } = boxes[at];
    return boxes.findIndex(
      (box) => Math.abs(box.left - left) < 2 && Math.abs(box.top - top - way * height) < height / 2,
    );
  }
}

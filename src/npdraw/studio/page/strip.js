/** The strip of thumbnails of the history. */

export class Strip {
  /** @type {WeakMap<object, {cells: number[], entry: HTMLElement}>} */ #made = new WeakMap();

  /**
   * @param {HTMLElement} list @param {import("./history.js").History} history
   * @param {import("./bank.js").Bank} bank
   */
  constructor(list, history, bank) {
    this.list = list;
    this.history = history;
    this.bank = bank;
    list.addEventListener("click", (event) => {
      const entry = /** @type {HTMLElement} */ (event.target).closest("li");
      if (entry) history.jump([...list.children].indexOf(entry));
    });
  }

  show() {
    const { drawings, index } = this.history;
    const entries = drawings.map((drawing) => this.#entry(drawing));
    if (entries.length !== this.list.children.length || entries.some((entry, i) => entry !== this.list.children[i]))
      this.list.replaceChildren(...entries); // not after a jump, so that the focus stays where it is
    entries.forEach((entry, i) => {
      const button = /** @type {HTMLElement} */ (entry.firstChild);
      button.ariaLabel = `Drawing ${i + 1} of ${entries.length}`;
      button.ariaCurrent = String(i === index);
    });
    const { offsetLeft, offsetTop } = entries[index];
    this.list.scrollTo(offsetLeft - this.list.clientWidth / 2, offsetTop - this.list.clientHeight / 2);
  }

  /** @param {import("./drawing.js").Drawing} drawing */
  #entry(drawing) {
    const made = this.#made.get(drawing);
    if (made?.cells === drawing.cells) return made.entry;
    const entry = document.createElement("li");
    const button = document.createElement("button");
    button.className = "thumb";
    button.append(this.bank.thumbnail(drawing.cells));
    entry.append(button);
    this.#made.set(drawing, { cells: drawing.cells, entry });
    return entry;
  }
}

/** Files in and out: images (opened, dropped, pasted), drawings as JSON, exports, and the link. */

import { Trouble, api } from "./api.js";
import { fromJson } from "./drawing.js";

const SHOWN = 512; // pixels of an exported picture's longer side, about

/** @param {string} id */
const element = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** @typedef {"a" | "b"} Target the drawing, or image B */

export class Files {
  #dialog = /** @type {HTMLDialogElement} */ (element("reading"));
  #input = /** @type {HTMLInputElement} */ (element("file"));
  /** @type {Target} */ #target = "a";

  /**
   * @param {import("./bank.js").Bank} bank
   * @param {object} on
   * @param {(cells: number[], target: Target, seed: number | null, freedom: number | null) => void} on.opened
   * @param {(text: string) => void} on.say
   * @param {(error: Error) => void} on.failed
   */
  constructor(bank, on) {
    this.bank = bank;
    this.on = on;
    this.#input.addEventListener("change", () => {
      const [file] = this.#input.files ?? [];
      this.#input.value = ""; // the same file can be chosen again
      if (file) this.open(file, this.#target);
    });
    this.#watchDrops();
    addEventListener("paste", (event) => {
      const [file] = event.clipboardData?.files ?? [];
      if (file) this.open(file, "a");
    });
  }

  /** Let the person choose a file. @param {Target} target */
  choose(target) {
    this.#target = target;
    this.#input.click();
  }

  /** @param {File} file @param {Target} target */
  async open(file, target) {
    try {
      if (/json$/.test(file.type) || file.name.endsWith(".json")) {
        const { cells, seed, freedom, note } = fromJson(await file.text(), this.bank.model);
        this.on.opened(cells, target, seed, freedom);
        return note && this.on.say(note);
      }
      const { upload_bytes: most } = this.bank.model.limits;
      if (file.size > most)
        throw new Trouble(`This file is too large: ${megabytes(file.size)}, and at most ${megabytes(most)} are read.`);
      const read = await api.read(file);
      if (read.drawing) {
        const { cells, seed, freedom } = read.drawing;
        this.on.opened(cells, target, seed ?? null, freedom ?? null);
        return this.on.say("This picture carries its drawing, which is opened.");
      }
      await this.#choice(file, read, target);
    } catch (error) {
      this.on.failed(/** @type {Error} */ (error));
    }
  }

  /** Show both readings of an image, and open the one that is chosen.
   * @param {File} file @param {{image: string, parse: number[], posterior: number[]}} read @param {Target} target */
  async #choice(file, read, target) {
    const { height, width } = this.bank.model;
    const dialog = this.#dialog;
    const form = /** @type {HTMLFormElement} */ (dialog.querySelector("form"));
    const where = /** @type {RadioNodeList} */ (form.elements.namedItem("target"));
    const size = await createImageBitmap(file).catch(() => null); // a format that only the server knows
    const other = size && (size.width !== width || size.height !== height);
    element("reading-size").textContent = other
      ? `The image has ${size.width} × ${size.height} pixels and is fitted to ${width} × ${height}, as the model sees it.`
      : "";
    /** @type {HTMLImageElement} */ (element("reading-image")).src = `data:image/png;base64,${read.image}`;
    for (const way of /** @type {const} */ (["parse", "posterior"]))
      this.bank.render(read[way], /** @type {HTMLCanvasElement} */ (element(`reading-${way}`)));
    where.value = target;
    dialog.returnValue = "";
    dialog.showModal();
    dialog.addEventListener(
      "close",
      () => {
        const way = /** @type {"parse" | "posterior" | ""} */ (dialog.returnValue);
        if (way) this.on.opened(read[way], /** @type {Target} */ (where.value), null, null);
      },
      { once: true },
    );
  }

  /** @param {import("./drawing.js").Drawing} drawing @param {"json" | "png" | "gif" | "mp4"} format
   * @param {object} told beside it to a flow */
  async save({ cells, seed }, format, told) {
    const { name, height, width } = this.bank.model;
    const scale = Math.max(1, Math.min(32, Math.round(SHOWN / Math.max(height, width))));
    try {
      const made = await api.export({ cells, format, scale, ...(seed === null ? {} : { seed }), ...told });
      const link = document.createElement("a");
      link.href = URL.createObjectURL(made);
      link.download = `${name}${seed === null ? "" : `-${seed}`}.${format}`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
      this.on.say(`Saved as ${link.download}.`);
    } catch (error) {
      this.on.failed(/** @type {Error} */ (error));
    }
  }

  #watchDrops() {
    const [veil, second] = [element("drop"), element("second")];
    addEventListener("dragover", (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      veil.classList.add("shown");
    });
    addEventListener("dragleave", (event) => event.relatedTarget ?? veil.classList.remove("shown"));
    addEventListener("drop", (event) => {
      event.preventDefault();
      veil.classList.remove("shown");
      const [file] = event.dataTransfer?.files ?? [];
      if (file) this.open(file, event.target instanceof Node && second.contains(event.target) ? "b" : "a");
    });
  }
}

/** @param {number} bytes */
const megabytes = (bytes) => `${(bytes / 2 ** 20).toPrecision(2)} MB`;

/** Files in and out: images (opened, dropped, pasted), drawings as JSON, and exports. */

import { Gone, Trouble, api } from "./api.js";
import { fresh, fromJson, toJson } from "./drawing.js";
import { fromBase64, toImage } from "./pixels.js";

const LARGE = 2048; // pixels of a side above which an image is made smaller before it is sent
const KINDS = /^image\/(png|jpeg|webp|gif|bmp)$/; // that the server reads
const SHOWN = 512; // about how many pixels the longer side of an exported picture has

/** @param {string} id */
const element = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** @typedef {import("./drawing.js").Drawing} Drawing */
/** @typedef {"a" | "b"} Target the drawing, or image B */
/** @typedef {"json" | "png" | "pair" | "gif" | "mp4"} Format */

export class Files {
  #dialog = /** @type {HTMLDialogElement} */ (element("reading"));
  #input = /** @type {HTMLInputElement} */ (element("file"));
  /** @type {Target} */ #target = "a";

  /**
   * @param {import("./bank.js").Bank} bank
   * @param {object} on
   * @param {(drawing: Drawing, target: Target, freedom?: number | null) => void} on.opened freedom: the file's
   * @param {(format: Format) => void} on.save
   * @param {(text: string, forever?: boolean) => void} on.say
   * @param {(error: Error) => void} on.failed
   */
  constructor(bank, on) {
    this.bank = bank;
    this.on = on;
    this.#input.addEventListener("change", () => {
      const [file] = this.#input.files ?? [];
      this.#input.value = ""; // so that the same file can be chosen again
      if (file) this.open(file, this.#target);
    });
    this.#watchDrops();
    this.#watchMenu();
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
        this.on.opened(fresh(cells, { kept: true, seed }), target, freedom);
        return note && this.on.say(note);
      }
      const { upload_bytes: most } = this.bank.model.limits;
      const sent = await sendable(file, most);
      if (sent.size > most)
        throw new Trouble(`This file is too large: ${megabytes(sent.size)}. At most ${megabytes(most)} are read.`);
      const read = await api.read(sent);
      if (this.bank.model.flow) return await this.#picture(file, read, target);
      if (read.drawing) {
        const { cells, seed } = read.drawing;
        this.on.opened(fresh(cells, { kept: true, seed }), target);
        return this.on.say("This picture carries its drawing, which is opened.");
      }
      await this.#choice(file, read, target);
    } catch (error) {
      this.on.failed(/** @type {Error} */ (error));
    }
  }

  /** Open a picture for a flow, as it is, with the drawing that it carries or with its parse.
   * @param {File} file @param {import("./api.js").Reading} read @param {Target} target */
  async #picture(file, { pixels, parse, drawing }, target) {
    const { cells, seed } = drawing ?? { cells: parse, seed: null };
    this.on.opened(fresh(cells, { kept: true, seed, pixels: fromBase64(pixels) }), target);
    const what = drawing ? "This picture carries its drawing, which is opened with it." : await this.#fitted(file);
    const then = target === "a" ? "The picture changes where you draw on it. Everything else stays." : "";
    if (what || then) this.on.say(`${what} ${then}`.trim());
  }

  /** A note for the person if an image has another size than the model's. @param {File} file */
  async #fitted(file) {
    const { height, width } = this.bank.model;
    const size = await createImageBitmap(file).catch(() => null); // null for a format that only the server can read
    const other = size && (size.width !== width || size.height !== height);
    return other
      ? `The image has ${size.width} × ${size.height} pixels and is fitted to ${width} × ${height}, as the model sees it.`
      : "";
  }

  /** Show both readings of an image, and open the chosen one.
   * @param {File} file @param {import("./api.js").Reading} read @param {Target} target */
  async #choice(file, read, target) {
    const dialog = this.#dialog;
    const form = /** @type {HTMLFormElement} */ (dialog.querySelector("form"));
    const where = /** @type {RadioNodeList} */ (form.elements.namedItem("target"));
    element("reading-size").textContent = await this.#fitted(file);
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
        if (way) this.on.opened(fresh(read[way], { kept: true }), /** @type {Target} */ (where.value));
      },
      { once: true },
    );
  }

  /** Save a drawing. The server makes pictures and films. While it is gone, the page saves the picture that it shows,
   * without the drawing in it.
   * @param {Drawing} drawing @param {Format} format @param {{freedom?: number}} told what a flow needs beside it
   * @param {Uint8Array | null} shown the drawing's picture, if the page has it */
  async save(drawing, format, told, shown) {
    const { cells, seed } = drawing;
    const wish = { cells, format, scale: this.#scale, ...(seed === null ? {} : { seed }), ...told };
    try {
      if (format === "json") {
        const text = toJson(drawing, this.bank.model, told.freedom ?? 0);
        return this.#download(new Blob([text, "\n"], { type: "application/json" }), drawing, format);
      }
      if (format !== "png") this.on.say("The film is being made …", true);
      this.#download(await api.export(wish), drawing, format);
    } catch (error) {
      if (!(error instanceof Gone && format === "png" && shown)) return this.on.failed(/** @type {Error} */ (error));
      await this.#draw([shown], drawing, "png");
      this.on.say("The server does not answer. The picture is saved, but without the drawing in it.");
    }
  }

  /** Save the pictures before and after the edits, side by side.
   * @param {Drawing} drawing @param {Uint8Array} before @param {Uint8Array} after */
  pair = (drawing, before, after) => this.#draw([before, after], drawing, "before-after.png");

  /** How many times larger an exported picture is. */
  get #scale() {
    const { height, width } = this.bank.model;
    return Math.max(1, Math.min(32, Math.round(SHOWN / Math.max(height, width))));
  }

  /** Save pictures side by side as a PNG. @param {Uint8Array[]} pictures @param {Drawing} drawing @param {string} end */
  async #draw(pictures, drawing, end) {
    const [{ model }, scale] = [this.bank, this.#scale];
    const canvas = new OffscreenCanvas((model.width * pictures.length + pictures.length - 1) * scale, model.height * scale);
    const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.imageSmoothingEnabled = false;
    for (const [i, pixels] of pictures.entries()) {
      const [x, image] = [i * (model.width + 1) * scale, await createImageBitmap(toImage(pixels, model))];
      context.drawImage(image, x, 0, model.width * scale, model.height * scale);
    }
    this.#download(await canvas.convertToBlob(), drawing, end);
  }

  /** @param {Blob} made @param {Drawing} drawing @param {string} end of the file's name */
  #download(made, { seed }, end) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(made);
    link.download = `${this.bank.model.name}${seed === null ? "" : `-${seed}`}.${end}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    this.on.say(`Saved as ${link.download}.`);
  }

  #watchMenu() {
    const menu = /** @type {HTMLDetailsElement} */ (element("export"));
    element("pair").hidden = !this.bank.model.flow;
    menu.addEventListener("click", (event) => {
      const button = /** @type {Element} */ (event.target).closest("button");
      if (!button) return;
      menu.open = false;
      this.on.save(/** @type {Format} */ (button.dataset.format));
    });
    addEventListener("pointerdown", (event) => {
      if (!menu.contains(/** @type {Node} */ (event.target))) menu.open = false;
    });
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

/** An image as the server reads it. One that is large, or of a kind that only the browser reads (AVIF; HEIC in some), is
 * drawn anew as a PNG, and made smaller if need be. Every other file stays as it is.
 * @param {File} file @param {number} most bytes @returns {Promise<File>} */
async function sendable(file, most) {
  const known = KINDS.test(file.type);
  if (!known && !file.type.startsWith("image/")) return file; // the server says what it is
  const image = await createImageBitmap(file).catch(() => null);
  if (!image) return file;
  const longer = Math.max(image.width, image.height);
  if (known && longer <= LARGE && file.size <= most) return file;
  const scale = Math.min(1, LARGE / longer);
  const [width, height] = [image.width, image.height].map((side) => Math.max(1, Math.round(side * scale)));
  const canvas = new OffscreenCanvas(width, height);
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  const type = file.type === "image/jpeg" ? "image/jpeg" : "image/png";
  return new File([await canvas.convertToBlob({ type, quality: 0.95 })], file.name, { type });
}

/** @param {number} bytes */
const megabytes = (bytes) => `${(bytes / 2 ** 20).toPrecision(2)} MB`;

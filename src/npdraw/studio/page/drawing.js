/** A drawing as the page holds it, its edits (each makes a new one), and its forms: a file's JSON, a link. */

import { Trouble } from "./api.js";

/** @typedef {import("./api.js").Model} Model */

/**
 * @typedef {object} Base a picture, and the cells that are its drawing
 * @property {Uint8Array} pixels
 * @property {number[]} cells
 */

/**
 * A sample or an ending, as the model drew it. A flow improves on it, so when the picture is there, the drawing is the
 * picture's parse.
 * @typedef {object} Sketch
 * @property {number[]} cells
 * @property {Base | null} base what an ending goes on with; its empty cells are made anew
 * @property {number} noise
 */

/**
 * A flow's picture is made of `base`, `cells` and `noise`, other decoders' of `cells` alone: there base, pixels and sketch
 * are null.
 * @typedef {object} Drawing
 * @property {number[]} cells L numbers in raster order: a part's index, or NONE
 * @property {boolean[]} touched drawn cells that are the person's, which an ending keeps
 * @property {Uint8ClampedArray | null} ink what the pen drew (RGBA, of the picture's size) where the cells come from it
 * @property {number | null} seed of the sample that it was
 * @property {number} noise seed of the noise that a flow makes its picture from: kept, so that an edit changes no more
 * @property {Base | null} base the picture that this is an edit of, which stays where the cells are the same
 * @property {Uint8Array | null} pixels its own picture, once that is there
 * @property {Sketch | null} sketch that it is, or is an edit of, until the sketch's picture is there
 */

export const NONE = -1;

/** @param {number} length @returns {Drawing} */
export const blank = (length) => fresh(Array(length).fill(NONE));

/** A drawing that came from elsewhere; `kept`: as if the person had drawn it; `pixels`: with its picture.
 * @param {number[]} cells
 * @param {{kept?: boolean, seed?: number | null, noise?: number, pixels?: Uint8Array | null}} [from]
 * @returns {Drawing} */
export const fresh = (cells, { kept = false, seed = null, noise = seed ?? 0, pixels = null } = {}) => ({
  cells,
  touched: cells.map((part) => kept && part !== NONE),
  ink: null,
  seed,
  noise,
  base: pixels && { pixels, cells },
  pixels,
  sketch: null,
});

/** A sample, of which a flow has yet to make the picture.
 * @param {number[]} cells @param {number} seed @returns {Drawing} */
export const sampled = (cells, seed) => ({
  ...fresh(cells, { seed }),
  sketch: { cells, base: null, noise: seed },
});

/** Put parts (or NONE) into cells. They are the person's then, and so is all that an ending would have kept: who draws
 * on a sample means to keep it. An erased cell is empty like any other. Where the picture is there, it is what the edit
 * leaves alone from now on; until then, what the edit before leaves alone.
 * @param {Drawing} drawing @param {Map<number, number>} parts by cell @param {Uint8ClampedArray | null} [ink]
 * @returns {Drawing} */
export function put(drawing, parts, ink = null) {
  const cells = drawing.cells.map((part, cell) => parts.get(cell) ?? part);
  const kept = fixed(drawing);
  const touched = cells.map((part, cell) => part !== NONE && (kept[cell] || parts.has(cell)));
  const { pixels, base } = drawing;
  const picture = alike(cells, drawing.cells) ? { base, pixels } : { base: pictured(drawing) ?? base, pixels: null };
  return { ...drawing, cells, touched, ink, seed: null, ...picture };
}

/** A drawing with an ending: what the model added is not the person's. `improved`: by a flow, from a sketch.
 * @param {Drawing} drawing @param {{cells: number[], sketch: number[]}} ending @param {boolean} improved
 * @returns {Drawing} */
export function ended(drawing, { cells, sketch }, improved) {
  const next = { ...drawing, cells, ink: null, seed: null };
  if (!improved) return next;
  const [kept, whole] = [fixed(drawing), pictured(drawing)];
  const base = whole && { ...whole, cells: whole.cells.map((part, cell) => (kept[cell] ? part : NONE)) };
  return { ...next, cells: sketch, base, pixels: null, sketch: { cells: sketch, base, noise: drawing.noise } };
}

/** The picture of a sketch is there. The cells that it adds are the picture's parse, but for those that the person has
 * drawn since: these are an edit of the picture. An ending that nobody has drawn on is still an edit of what it goes on
 * with. In place, since a stroke may be under way.
 * @param {Drawing} drawing of this sketch @param {Uint8Array} pixels @param {number[]} parse */
export function settle(drawing, pixels, parse) {
  const { cells: drawn, base } = /** @type {Sketch} */ (drawing.sketch);
  const own = parse.map((part, cell) => (!base || base.cells[cell] === NONE ? part : base.cells[cell]));
  drawing.cells = drawing.cells.map((part, cell) => (part === drawn[cell] ? own[cell] : part));
  drawing.touched = drawing.touched.map((kept, cell) => kept && drawing.cells[cell] !== NONE);
  drawing.pixels = alike(drawing.cells, own) ? pixels : null;
  if (!base || !drawing.pixels) drawing.base = { pixels, cells: own };
  drawing.sketch = null;
}

/** With other noise: what is edited is made anew, and where nothing is, all.
 * @param {Drawing} drawing @param {number} noise @returns {Drawing} */
export function renewed(drawing, noise) {
  const next = { ...drawing, noise, seed: null, pixels: null };
  if (drawing.sketch) return { ...next, sketch: { ...drawing.sketch, noise } };
  return { ...next, base: isUnedited(drawing) ? null : drawing.base };
}

/** Whether it is a picture, and nothing else. @param {Drawing} drawing */
export const isUnedited = ({ base, cells }) => base !== null && alike(cells, base.cells);

/** The picture of a drawing with its cells, where it is there. @param {Drawing} drawing @returns {Base | null} */
export const pictured = ({ pixels, cells }) => pixels && { pixels, cells };

/** @param {Drawing} drawing @param {number} from @param {number} to */
export const move = (drawing, from, to) =>
  put(drawing, new Map([[to, drawing.cells[from]], [from, NONE]]));

/** Whether there is nothing of it: a picture can be so dark that no part of it is drawn.
 * @param {{cells: number[], pixels: object | null, sketch: object | null}} drawing */
export const isBlank = ({ cells, pixels, sketch }) => !pixels && !sketch && cells.every((part) => part === NONE);

/** @param {number[]} a @param {number[]} b */
const alike = (a, b) => a.every((part, cell) => part === b[cell]);

/** @param {Drawing} a @param {Drawing} b */
export const same = (a, b) =>
  a.noise === b.noise && a.base === b.base && a.sketch === b.sketch && alike(a.cells, b.cells);

/** What an ending keeps: the person's cells, or where there are none all that are drawn.
 * @param {Drawing} drawing */
export const fixed = ({ cells, touched }) => (touched.some(Boolean) ? touched : cells.map((part) => part !== NONE));

/** @param {unknown} seed */
const isSeed = (seed) => Number.isSafeInteger(seed) && Number(seed) >= 0;

/** Cells that are no drawing of this model's are Trouble.
 * @param {unknown} cells @param {Model} model */
function checked(cells, { grid, parts }) {
  const length = grid.rows * grid.columns;
  if (!Array.isArray(cells) || cells.length !== length)
    throw new Trouble(`This drawing is not for a grid of ${grid.rows} by ${grid.columns} cells.`);
  if (cells.some((part) => !Number.isInteger(part) || part < NONE || part >= parts))
    throw new Trouble(`This drawing names parts that a bank of ${parts} does not have.`);
  return cells;
}

/** The first drawing of a file that npdraw wrote, its seed and freedom, and what a person should know of it (or "").
 * @param {string} text @param {Model} model */
export function fromJson(text, model) {
  let data;
  try {
    data = JSON.parse(text);
  } catch {
    throw new Trouble("This file is not JSON that a drawing could be.");
  }
  const row = data?.format === "npdraw-drawing" && data.version === 1 && data.drawings?.[0];
  if (!row || ![row.what, row.where, row.whether].every(Array.isArray))
    throw new Trouble("This file holds no drawing of npdraw.");
  const cells = Array(model.grid.rows * model.grid.columns).fill(NONE);
  row.whether.forEach((/** @type {number} */ drawn, /** @type {number} */ step) => {
    if (!drawn) return;
    if (cells[row.where[step]] !== NONE)
      throw new Trouble("This drawing draws a place twice, or one outside of the grid, so the studio cannot edit it.");
    cells[row.where[step]] = row.what[step];
  });
  const several = data.drawings.length;
  const foreign = typeof data.weights === "string" && data.weights !== model.weights;
  const notes = [
    several > 1 ? `This file holds ${several} drawings, of which the first is opened.` : "",
    foreign ? `This drawing was made with other weights (${data.model}), so it may look different here.` : "",
  ];
  const first = data.seed ?? data.seeds?.[0]; // of `npdraw sample`, whose drawings have one each
  const seed = isSeed(first) ? /** @type {number} */ (first) : null;
  const freedom = typeof data.freedom === "number" && data.freedom >= 0 && data.freedom <= 1 ? data.freedom : null;
  return { cells: checked(cells, model), seed, freedom, note: notes.filter(Boolean).join(" ") };
}

/** The fragment of a link. @param {Drawing} drawing @param {Model} model @param {number} freedom */
export function toFragment({ cells, noise }, { weights, flow }, freedom) {
  const bytes = new Uint8Array(cells.length * 2);
  const view = new DataView(bytes.buffer);
  cells.forEach((part, cell) => view.setInt16(2 * cell, part, true));
  const text = btoa(String.fromCharCode(...bytes));
  const told = flow ? `&s=${noise}&f=${freedom}` : "";
  return `#d=${text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}&m=${weights}${told}`;
}

/** The cells, noise and freedom of a link, or null where it carries none.
 * @param {string} fragment @param {Model} model */
export function fromFragment(fragment, model) {
  const fields = new URLSearchParams(fragment.slice(1));
  const text = fields.get("d");
  if (text === null) return null;
  const weights = fields.get("m") ?? "";
  const damaged = new Trouble("This link is damaged, perhaps cut short, so it is not opened.");
  if (weights.length !== model.weights.length) throw damaged;
  if (weights !== model.weights) throw new Trouble("This link was made with another model, so it is not opened.");
  const [noise, freedom] = [Number(fields.get("s") ?? 0), Number(fields.get("f") ?? 0)];
  if (!isSeed(noise) || !(freedom >= 0 && freedom <= 1)) throw damaged;
  try {
    const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    const cells = Array.from({ length: bytes.length >> 1 }, (_, cell) => view.getInt16(2 * cell, true));
    return { cells: checked(cells, model), noise, freedom };
  } catch {
    throw damaged;
  }
}

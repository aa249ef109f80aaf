/** A drawing in the page, its edits (each makes a new drawing), and its forms in files and links. */

import { Trouble } from "./api.js";

/** @typedef {import("./api.js").Model} Model */

/**
 * @typedef {object} Base a picture, and the cells that are its drawing
 * @property {Uint8Array} pixels
 * @property {number[]} cells
 */

/**
 * A sample or an ending, as the model drew it. A flow improves on it. So when the picture is ready, the drawing becomes
 * the picture's parse.
 * @typedef {object} Sketch
 * @property {number[]} cells
 * @property {Base | null} base the picture that an ending continues; its empty cells are made anew
 * @property {number} noise
 */

/**
 * A flow makes its picture from `base`, `cells` and `noise`. Other decoders make it from `cells` alone; for them base,
 * pixels and sketch are null.
 * @typedef {object} Drawing
 * @property {number[]} cells L numbers in raster order: a part's index, or NONE
 * @property {boolean[]} touched which drawn cells are the person's; an ending keeps them
 * @property {Uint8ClampedArray | null} ink what the pen drew (RGBA, of the picture's size), if the cells come from it
 * @property {number | null} seed of the sample, if this is one
 * @property {number} noise seed of the flow's noise; edits keep it, so that they change nothing else
 * @property {Base | null} base the picture that this is an edit of; it stays where the cells are the same
 * @property {Uint8Array | null} pixels its own picture, once it is ready
 * @property {Sketch | null} sketch the one that this is or edits, until the sketch's picture is ready
 */

export const NONE = -1;

/** @param {number} length @returns {Drawing} */
export const blank = (length) => fresh(Array(length).fill(NONE));

/** A drawing from elsewhere. `kept`: its cells count as the person's. `pixels`: its picture.
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

/** A sample whose picture a flow has not made yet.
 * @param {number[]} cells @param {number} seed @returns {Drawing} */
export const sampled = (cells, seed) => ({
  ...fresh(cells, { seed }),
  sketch: { cells, base: null, noise: seed },
});

/** Put parts (or NONE) into cells. These cells become the person's, and so do all cells that an ending would keep: a
 * person who draws on a sample wants to keep it. An erased cell is empty like any other. If the drawing's picture is
 * ready, the new drawing is an edit of it. If not, it is an edit of the same picture as the drawing.
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

/** A drawing with an ending. What the model added is not the person's. `improved`: whether a flow improves on it.
 * @param {Drawing} drawing @param {{cells: number[], sketch: number[]}} ending @param {boolean} improved
 * @returns {Drawing} */
export function ended(drawing, { cells, sketch }, improved) {
  const next = { ...drawing, cells, ink: null, seed: null };
  if (!improved) return next;
  const [kept, whole] = [fixed(drawing), pictured(drawing)];
  const base = whole && { ...whole, cells: whole.cells.map((part, cell) => (kept[cell] ? part : NONE)) };
  return { ...next, cells: sketch, base, pixels: null, sketch: { cells: sketch, base, noise: drawing.noise } };
}

/** Change a drawing when the picture of its sketch is ready. The cells that the sketch adds become the picture's parse,
 * except for those that the person has drawn since: these are an edit of the picture. An ending that nobody has drawn
 * on is still an edit of the picture that it continues. It works in place, since a stroke may be under way.
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

/** A drawing with other noise: the edited cells are made anew, or the whole picture if nothing is edited.
 * @param {Drawing} drawing @param {number} noise @returns {Drawing} */
export function renewed(drawing, noise) {
  const next = { ...drawing, noise, seed: null, pixels: null };
  if (drawing.sketch) return { ...next, sketch: { ...drawing.sketch, noise } };
  return { ...next, base: isUnedited(drawing) ? null : drawing.base };
}

/** Whether it is a picture without an edit. @param {Drawing} drawing */
export const isUnedited = ({ base, cells }) => base !== null && alike(cells, base.cells);

/** A drawing's picture with its cells, or null if it is not ready. @param {Drawing} drawing @returns {Base | null} */
export const pictured = ({ pixels, cells }) => pixels && { pixels, cells };

/** @param {Drawing} drawing @param {number} from @param {number} to */
export const move = (drawing, from, to) =>
  put(drawing, new Map([[to, drawing.cells[from]], [from, NONE]]));

/** Whether there is nothing to show. A picture counts, even if it is so dark that no part of it is drawn.
 * @param {{cells: number[], pixels: object | null, sketch: object | null}} drawing */
export const isBlank = ({ cells, pixels, sketch }) => !pixels && !sketch && cells.every((part) => part === NONE);

/** @param {number[]} a @param {number[]} b */
const alike = (a, b) => a.every((part, cell) => part === b[cell]);

/** @param {Drawing} a @param {Drawing} b */
export const same = (a, b) =>
  a.noise === b.noise && a.base === b.base && a.sketch === b.sketch && alike(a.cells, b.cells);

/** Which cells an ending keeps: the person's, or all drawn cells if none is the person's.
 * @param {Drawing} drawing */
export const fixed = ({ cells, touched }) => (touched.some(Boolean) ? touched : cells.map((part) => part !== NONE));

/** @param {unknown} seed */
const isSeed = (seed) => Number.isSafeInteger(seed) && Number(seed) >= 0;

/** The cells, if they are a drawing for this model; else Trouble.
 * @param {unknown} cells @param {Model} model */
function checked(cells, { grid, parts }) {
  const length = grid.rows * grid.columns;
  if (!Array.isArray(cells) || cells.length !== length)
    throw new Trouble(`This drawing is not for a grid of ${grid.rows} by ${grid.columns} cells.`);
  if (cells.some((part) => !Number.isInteger(part) || part < NONE || part >= parts))
    throw new Trouble(`This drawing uses parts that a bank of ${parts} does not have.`);
  return cells;
}

/** The first drawing of a file that npdraw wrote, its seed and freedom, and a note for the person (or "").
 * @param {string} text @param {Model} model */
export function fromJson(text, model) {
  let data;
  try {
    data = JSON.parse(text);
  } catch {
    throw new Trouble("This file is not JSON, so it cannot be a drawing.");
  }
  const row = data?.format === "npdraw-drawing" && data.version === 1 && data.drawings?.[0];
  if (!row || ![row.what, row.where, row.whether].every(Array.isArray))
    throw new Trouble("This file has no drawing of npdraw.");
  const cells = Array(model.grid.rows * model.grid.columns).fill(NONE);
  row.whether.forEach((/** @type {number} */ drawn, /** @type {number} */ step) => {
    if (!drawn) return;
    if (cells[row.where[step]] !== NONE)
      throw new Trouble("This drawing uses a place twice or outside of the grid, so the studio cannot edit it.");
    cells[row.where[step]] = row.what[step];
  });
  const several = data.drawings.length;
  const foreign = typeof data.weights === "string" && data.weights !== model.weights;
  const notes = [
    several > 1 ? `This file has ${several} drawings. The first is opened.` : "",
    foreign ? `This drawing was made with other weights (${data.model}), so it may look different here.` : "",
  ];
  const first = data.seed ?? data.seeds?.[0]; // `npdraw sample` writes one seed per drawing
  const seed = isSeed(first) ? /** @type {number} */ (first) : null;
  const freedom = typeof data.freedom === "number" && data.freedom >= 0 && data.freedom <= 1 ? data.freedom : null;
  return { cells: checked(cells, model), seed, freedom, note: notes.filter(Boolean).join(" ") };
}

/** A drawing as a file that npdraw and this page read. @param {Drawing} drawing @param {Model} model
 * @param {number} freedom */
export function toJson({ cells, seed, noise }, { name, weights, bank, flow }, freedom) {
  const row = {
    what: cells.map((part) => Math.max(part, 0)),
    where: cells.map((part, cell) => (part === NONE ? 0 : cell)),
    whether: cells.map((part) => Number(part !== NONE)),
  };
  const file = { format: "npdraw-drawing", version: 1, steps: cells.length, drawings: [row], model: name, weights, bank };
  return JSON.stringify({ ...file, seed: flow ? noise : seed, freedom: flow ? freedom : null });
}

/** The picture that the edits of a drawing began with, or null. It is looked for in the history.
 * @param {Drawing} drawing @param {Drawing[]} history @returns {Uint8Array | null} */
export function original({ base }, history) {
  const made = base && history.find((one) => one.pixels === base.pixels && one.base && !isUnedited(one));
  return made ? original(made, history) : base && base.pixels;
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

/** The cells, noise and freedom of a link, or null if it has none.
 * @param {string} fragment @param {Model} model */
export function fromFragment(fragment, model) {
  const fields = new URLSearchParams(fragment.slice(1));
  const text = fields.get("d");
  if (text === null) return null;
  const weights = fields.get("m") ?? "";
  const damaged = new Trouble("This link is damaged or cut short, so it is not opened.");
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

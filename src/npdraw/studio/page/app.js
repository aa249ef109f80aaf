/** The studio: asks for the model, makes the parts of the page, and connects them. */

import { Latest, api } from "./api.js";
import { watch } from "./away.js";
import { Bank } from "./bank.js";
import { Board } from "./board.js";
import { NONE, blank, ended, fixed, fresh, isBlank, isUnedited, original, renewed, sampled } from "./drawing.js";
import { Endings } from "./endings.js";
import { Files } from "./files.js";
import { Flow } from "./flow.js";
import { Gallery } from "./gallery.js";
import { Hand } from "./hand.js";
import { History } from "./history.js";
import { listen, whileHeld } from "./keys.js";
import { Link } from "./link.js";
import { Others } from "./others.js";
import { Palette } from "./palette.js";
import { Pen } from "./pen.js";
import { Picture } from "./picture.js";
import { Player } from "./player.js";
import { Reasons } from "./reasons.js";
import { Second } from "./second.js";
import { Strip } from "./strip.js";
import { complain, percent, quiet, say, speak } from "./words.js";
import { Work } from "./work.js";
import { Works } from "./works.js";

const PAUSE = 800; // milliseconds from a stroke of the pen to the request for endings
const SETTLE = 120; // milliseconds until the model is asked what it would draw in the cell; pictures come first

/** @param {string} id @returns {any} */
const element = (id) => document.getElementById(id);

/** @param {import("./api.js").Model} model @param {Bank} bank
 * @param {Work} work @param {import("./work.js").Kept | null} before */
function studio(model, bank, work, before) {
  const { rows, columns } = model.grid;
  const failed = watch(model.weights, () => {
    show();
    settle();
    if (gallery.failed) gallery.fill();
  });
  const history = new History(blank(rows * columns));
  const board = new Board(element("board"), bank);
  const picture = new Picture(element("picture"), element("nothing"), model, {
    wish: (drawing) => flow.wish(drawing),
    made,
    failed(error) {
      if (waiting) endings.clear();
      waiting = null;
      failed(error);
    },
  });
  const pen = new Pen(bank, history, { width: element("width"), colour: element("colour") }, failed);
  const strip = new Strip(element("strip"), history, bank);
  const player = new Player({
    scrubber: element("scrubber"),
    button: element("play"),
    icon: element("play-icon"),
    step: element("step"),
  }, () => reasons.shown);
  const reasons = new Reasons(
    { panel: element("reasons"), text: element("reasons-text"), list: element("reasons-list"), button: element("why") },
    bank,
    { changed: () => (player.stop(), explain()), failed },
  );
  const nextLatest = new Latest(0, failed);
  /** @type {import("./drawing.js").Drawing | null} */ let first = null; // the sample that the page began with
  let cursor = Math.floor(rows / 2) * columns + Math.floor(columns / 2);
  /** @type {number | undefined} */ let settling;
  /** @type {number | undefined} */ let pausing;
  /** @type {(() => void) | null} */ let waiting = null; // what to do when the picture is ready

  const flow = new Flow(model, {
    noise(noise) {
      const { present } = history;
      const whole = !present.base || isUnedited(present);
      history.push(renewed(present, noise));
      speak(whole ? "New noise: another picture of this drawing" : "New noise: what you edited is made anew");
    },
    freedom() {
      if (!isUnedited(history.present)) history.present.pixels = null;
      show();
    },
  });
  const link = new Link(model, history, flow);
  const gallery = new Gallery(element("gallery"), bank, {
    told: flow.thumbnail,
    open(sample) {
      history.push(drawn(sample));
      element("picture").parentElement.scrollIntoView({ block: "nearest" });
      speak(`Sample of seed ${sample.seed} opened`);
    },
    failed,
  });
  const endings = new Endings(
    { list: element("ghosts"), hint: element("endings-hint"), dismiss: element("dismiss") },
    {
      temperature: () => gallery.temperature,
      told: (drawing) => flow.endings(drawing),
      preview(ghost, image) {
        board.show({ ghost });
        picture.peek(image);
      },
      take(ending, which) {
        history.push(ended(history.present, ending, Boolean(model.flow)));
        board.canvas.focus({ preventScroll: true });
        speak(`Ending ${which + 1} taken`);
      },
      found: speak,
      failed,
    },
  );
  const palette = new Palette(element("palette"), bank, {
    drag(event) {
      const cell = event ? board.cellAt(event) : NONE;
      board.show({ hover: cell, ghost: cell === NONE ? null : board.view.cells.with(cell, palette.selected) });
    },
    drop(event) {
      const cell = board.cellAt(event);
      if (cell === NONE) return;
      hand.use(cell);
    },
  });
  const hand = new Hand(board, history, palette, pen, {
    second: () => second.cells,
    begin() {
      if (!player.whole) player.load(history.present.cells);
      clearTimeout(pausing);
      endings.clear();
    },
    cursor: setCursor,
    lacking: () => say("There is no image B yet: open one, or use the drawing."),
  });
  const files = new Files(bank, {
    opened(drawing, target, freedom = null) {
      if (target === "a") {
        history.push(drawing);
        if (freedom !== null) flow.freedom = freedom;
        return;
      }
      second.set(drawing);
      setTool("region");
    },
    save,
    say: (text, forever) => say(text, "word", forever),
    failed,
  });
  const works = new Works(work, bank, {
    keep() {
      if (isBlank(history.present)) return say("There is nothing to keep yet: draw, or open a sample.");
      withPicture(() => works.keep(history.present, shown(), flow.freedom), soon);
    },
    open({ drawing, freedom, name }) {
      history.push({ ...drawing });
      flow.freedom = freedom;
      speak(`${name} opened`);
    },
  });
  const others = new Others(flow, (drawing) => history.push(drawing), failed);
  const second = new Second(bank, {
    open: () => files.choose("b"),
    copy: () => second.set(history.present),
    swap() {
      const other = /** @type {import("./drawing.js").Drawing} */ (second.drawing);
      second.set(history.present);
      history.push({ ...other, touched: other.cells.map((part) => part !== NONE), ink: null, seed: null });
    },
    begin: () => hand.begin(),
    paint: (cell) => hand.touch(cell),
  });

  /** @param {import("./gallery.js").Sample} sample */
  const drawn = ({ sketch, seed }) => (model.flow ? sampled(sketch, seed) : fresh(sketch, { seed }));

  /** A new page begins with a sample, unless the person is quicker. @param {import("./gallery.js").Sample} sample */
  function begin(sample) {
    if (history.drawings.length > 1 || !isBlank(history.present) || pen.busy) return;
    first = drawn(sample);
    history.amend(first);
  }

  /** Explain the step that the player shows. */
  function explain() {
    if (reasons.shown) board.show({ hover: player.newest ?? NONE });
    reasons.show(history.present.cells, player.newest);
  }

  /** Show the picture of the steps so far. */
  function show() {
    picture.show(history.present, player.whole ? null : player.cells);
  }

  /** A flow's full picture is ready. It is kept with its drawing. A sample's or an ending's drawing becomes its parse.
   * @param {import("./drawing.js").Drawing} drawing @param {Uint8Array} pixels @param {AbortSignal} signal */
  async function made(drawing, pixels, signal) {
    const { sketch } = drawing;
    const parse = sketch && (await api.draw(pixels, signal)).cells;
    signal.throwIfAborted();
    const then = waiting;
    if (sketch && parse) history.settle(sketch, pixels, parse);
    else drawing.pixels = pixels;
    work.changed();
    const there = history.present.pixels !== null; // an edit of a sketch waits for its own picture
    waiting = there ? null : then;
    if (there) then?.();
  }

  /** Do what needs the picture once it is ready. @param {() => void} then @param {() => void} meanwhile until then */
  function withPicture(then, meanwhile) {
    if (!model.flow || history.present.pixels || isBlank(history.present)) return then();
    if (!player.whole) player.load(history.present.cells);
    else if (!picture.busy) show(); // an earlier request for it failed
    meanwhile();
    waiting = then;
  }

  const soon = () => say("This is done as soon as the picture is ready.");

  /** @param {import("./files.js").Format} format */
  function save(format) {
    if (isBlank(history.present)) return say("There is nothing to save yet: draw, or open a sample.");
    if (format === "pair") return withPicture(savePair, soon);
    const saved = () => files.save(history.present, format, flow.file(history.present), shown());
    if (format === "json" && !history.present.sketch) saved();
    else withPicture(saved, soon);
  }

  /** The drawing's picture, or null if the page does not have it. */
  const shown = () => history.present.pixels ?? (player.whole && !model.flow ? picture.current : null);

  function savePair() {
    const { present, drawings } = history;
    const before = original(present, drawings);
    if (before && present.pixels && before !== present.pixels) files.pair(present, before, present.pixels);
    else say("Nothing is edited yet: draw on the picture first.");
  }

  /** @param {number} cell */
  function setCursor(cell) {
    cursor = cell;
    board.show({ cursor });
    tell();
    settle();
  }

  /** Say what is in the selected cell. */
  function tell() {
    const part = history.present.cells[cursor];
    const holds = part === NONE ? "empty" : `part ${part}`;
    speak(`Row ${Math.floor(cursor / columns) + 1}, column ${(cursor % columns) + 1}: ${holds}`);
  }

  /** Once the hand rests, ask what the model would draw in the selected cell. */
  function settle() {
    clearTimeout(settling);
    settling = setTimeout(() => {
      nextLatest.run(async (signal) => {
        const { what, whether } = await api.next(history.present.cells, cursor, signal);
        palette.heat(what);
        element("whether").textContent = `Chance that the model draws here: ${percent(whether)}.`;
      });
    }, SETTLE);
  }

  /** @param {import("./hand.js").Tool} tool */
  function setTool(tool) {
    hand.tool = tool;
    element("tools").querySelector(`[value=${tool}]`).checked = true;
    element("desk").dataset.tool = tool;
    second.show(tool === "region");
    const pens = tool === "pen";
    board.show({ ink: pens && history.present.ink ? pen.canvas : null, hover: NONE, ghost: null, faint: pens });
  }

  /** When the pen pauses, show how the model would continue. */
  function rest() {
    clearTimeout(pausing);
    if (history.present.ink && hand.tool === "pen") pausing = setTimeout(() => (pen.busy ? rest() : finish(false)), PAUSE);
  }

  /** @param {boolean} asked whether the person asked for endings, who is then told if there are none */
  function finish(asked) {
    clearTimeout(pausing);
    if (!asked && fixed(history.present).every(Boolean)) return;
    withPicture(() => endings.ask(history.present, asked), () => endings.wait());
  }

  function dismiss() {
    clearTimeout(pausing);
    waiting = null;
    endings.clear();
    quiet();
    element("export").open = false;
  }

  /** @param {number} right @param {number} down */
  function step(right, down) {
    const [x, y] = [(cursor % columns) + right, Math.floor(cursor / columns) + down];
    board.canvas.focus({ preventScroll: true });
    board.show({ faint: false });
    if (x >= 0 && x < columns && y >= 0 && y < rows) setCursor(y * columns + x);
  }

  function erase() {
    hand.begin();
    hand.paint(cursor, NONE);
  }

  function undo() {
    speak(history.index ? "Undone" : "Nothing to undo");
    history.undo();
  }

  function redo() {
    speak(history.index < history.drawings.length - 1 ? "Redone" : "Nothing to redo");
    history.redo();
  }

  function clear() {
    history.push(blank(rows * columns));
    speak("The canvas is empty");
  }

  /** While it is held, show the picture before the edits. @param {boolean} held */
  function compare(held) {
    const { pixels } = history.present;
    const before = original(history.present, history.drawings);
    if (before && pixels && player.whole) picture.compare(held ? before : pixels);
  }

  const help = () => element("manual").showModal();

  history.addEventListener("change", () => {
    const { present } = history;
    work.changed();
    waiting = null;
    endings.clear();
    second.refresh();
    rest();
    player.load(present.cells);
    strip.show();
    settle();
    element("undo").disabled = history.index === 0;
    element("redo").disabled = history.index === history.drawings.length - 1;
    for (const id of ["clear", "noise", "six"]) element(id).disabled = isBlank(present);
    element("try").hidden = present !== first;
    element("hint").hidden = !isBlank(present) || pen.down;
  });
  player.addEventListener("step", () => {
    const { present } = history;
    const whole = player.whole;
    board.show({
      cells: player.cells,
      dots: present.touched,
      ink: whole && present.ink && hand.tool === "pen" ? pen.canvas : null,
      ghost: null,
    });
    show();
    explain();
  });
  palette.addEventListener("pick", () => hand.tool === "part" || setTool("part"));
  board.canvas.addEventListener("pointerdown", () => {
    element("hint").hidden = true;
    if (pen.down) board.show({ ink: pen.canvas });
  });
  board.canvas.addEventListener("pointermove", () => pen.down && board.show({ ink: pen.canvas }));

  element("tools").addEventListener("change", (/** @type {any} */ event) => setTool(event.target.value));
  element("tools").addEventListener("click", (/** @type {MouseEvent} */ event) => {
    if (event.detail) board.canvas.focus({ preventScroll: true }); // after a click, keys are the board's again
  });
  element("order").addEventListener("change", (/** @type {any} */ event) =>
    palette.sort(event.target.value === "alike"),
  );
  whileHeld(element("compare"), "b", compare);
  element("six").addEventListener("click", () => withPicture(() => others.show(history.present), soon));
  element("undo").addEventListener("click", undo);
  element("redo").addEventListener("click", redo);
  element("clear").addEventListener("click", clear);
  element("finish").addEventListener("click", () => finish(true));
  element("open").addEventListener("click", () => files.choose("a"));
  element("link").addEventListener("click", () => link.copy());
  element("help").addEventListener("click", help);

  const digits = Array.from({ length: 9 }, (_, i) => i);
  listen({
    ArrowLeft: () => step(-1, 0),
    ArrowRight: () => step(1, 0),
    ArrowUp: () => step(0, -1),
    ArrowDown: () => step(0, 1),
    Enter: () => hand.use(cursor),
    Delete: erase,
    Backspace: erase,
    Escape: dismiss,
    " ": () => player.toggle(),
    p: () => setTool("pen"),
    t: () => setTool("part"),
    e: () => setTool("erase"),
    r: () => setTool("region"),
    f: () => finish(true),
    n: () => gallery.roll(),
    o: () => files.choose("a"),
    b: () => compare(true),
    l: () => link.copy(),
    "?": help,
    "Ctrl+z": undo,
    "Ctrl+Shift+z": redo,
    "Ctrl+y": redo,
    "Ctrl+s": () => save("json"),
    "Ctrl+Backspace": clear,
    ...Object.fromEntries(digits.map((i) => [String(i + 1), () => speak(palette.pickLikely(i))])),
    ...Object.fromEntries(digits.map((i) => [`Shift+Digit${i + 1}`, () => endings.take(i)])),
  });

  work.present = () => ({
    drawings: history.drawings,
    index: history.index,
    settings: { ...gallery.settings, freedom: flow.freedom, tool: hand.tool },
  });
  addEventListener("change", () => work.changed()); // of a control of the page

  const { tool = "pen", freedom = flow.freedom, ...form } = /** @type {any} */ (before?.settings ?? {});
  if (before) gallery.settings = form;
  flow.freedom = freedom;
  setTool(tool);
  setCursor(cursor);
  if (before) history.restore(before.drawings, before.index);
  else history.jump(0);
  link.open();
  gallery.fill(link.any ? undefined : begin);
}

try {
  const [model, parts] = await Promise.all([api.model(), api.parts()]);
  const { canvas, grid, height, width } = model;
  document.documentElement.style.setProperty("--aspect", `${width} / ${height}`);
  document.documentElement.style.setProperty("--empty", model.inverted ? "#fff" : "#000");
  element("model").textContent = `${model.name}: ${model.parts} parts on ${grid.rows} × ${grid.columns} cells`;
  document.title = `${model.name} · npdraw studio`;
  element("board").ariaLabel =
    `Canvas of ${grid.rows} by ${grid.columns} cells, ${canvas.width} × ${canvas.height} pixels`;
  const work = await Work.open(model.weights);
  studio(model, new Bank(model, parts), work, await work.before(grid.rows * grid.columns));
  document.body.classList.add("ready");
} catch (error) {
  complain(/** @type {Error} */ (error), true);
}

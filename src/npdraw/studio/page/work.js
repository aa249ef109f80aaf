/** The work of this page in the browser's own database (IndexedDB), so that closing or reloading the page loses nothing.
 * The browser keeps it for this address. There is one entry for each model, by the hash of its weights. Beside it are the
 * works that the person keeps, each with a number. Where the browser has no such database, as in some private windows,
 * nothing is kept and the page works as before. */

const [DATABASE, STORE, WORKS] = ["npdraw", "work", "works"];
const TOOLS = ["pen", "part", "erase", "region"];
const PAUSE = 200; // milliseconds from a change to its writing

/** @typedef {{drawings: import("./drawing.js").Drawing[], index: number, settings: object}} Kept */

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
const done = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

async function database() {
  const request = indexedDB.open(DATABASE, 2);
  request.onupgradeneeded = ({ oldVersion }) => {
    if (oldVersion < 1) request.result.createObjectStore(STORE);
    request.result.createObjectStore(WORKS, { keyPath: "id", autoIncrement: true });
  };
  const opened = await done(request);
  opened.onversionchange = () => opened.close(); // a newer page in another tab may change it
  return opened;
}

/** Whether this is work as this page keeps it; another version of the page may have kept it in another form.
 * @param {any} kept @param {number} cells @returns {kept is Kept} */
const isWhole = (kept, cells) =>
  Array.isArray(kept?.drawings) &&
  kept.index in kept.drawings &&
  kept.drawings.every((/** @type {any} */ { cells: own, touched, noise } = {}) =>
    [own, touched].every((list) => Array.isArray(list) && list.length === cells) && Number.isInteger(noise)) &&
  TOOLS.includes(kept.settings?.tool);

export class Work {
  /** @type {number | undefined} */ #timer;

  /** @param {IDBDatabase | null} database @param {string} weights */
  constructor(database, weights) {
    this.database = database;
    this.weights = weights;
    /** @type {(() => Kept) | null} */ this.present = null;
    addEventListener("visibilitychange", () => document.hidden && this.#write());
  }

  /** @param {string} weights */
  static open = async (weights) => new Work(await database().catch(() => null), weights);

  /** What was kept before, or null. Without it the page opens, so what this page cannot read counts as nothing.
   * @param {number} cells of a drawing @returns {Promise<Kept | null>} */
  async before(cells) {
    const store = this.database?.transaction(STORE).objectStore(STORE);
    const kept = store && (await done(store.get(this.weights)).catch(() => null));
    return isWhole(kept, cells) ? kept : null;
  }

  /** The works that the person keeps, of this model. @returns {Promise<import("./works.js").Kept[]>} */
  async works() {
    const all = this.database ? await done(this.#works("readonly").getAll()) : [];
    return all.filter(({ weights }) => weights === this.weights);
  }

  /** Keep a work, or change one that is kept. @param {import("./works.js").Kept} kept */
  keep = async (kept) => done(this.#works("readwrite").put(kept));

  /** @param {number} id */
  remove = async (id) => done(this.#works("readwrite").delete(id));

  /** @param {IDBTransactionMode} mode */
  #works = (mode) => /** @type {IDBDatabase} */ (this.database).transaction(WORKS, mode).objectStore(WORKS);

  /** Write what `present` returns, soon. */
  changed() {
    this.#timer ??= setTimeout(() => this.#write(), PAUSE);
  }

  #write() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (!this.present || !this.database) return;
    const kept = this.present();
    const store = this.database.transaction(STORE, "readwrite").objectStore(STORE);
    done(store.put(kept, this.weights)).catch(() => {}); // the disk is full: the page goes on without it
  }
}

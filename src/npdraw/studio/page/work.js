/** The work of this page in the browser's own database (IndexedDB), so that closing or reloading the page loses nothing.
 * The browser keeps it for this address. There is one entry for each model, by the hash of its weights. Where the browser
 * has no such database, as in some private windows, nothing is kept and the page works as before. */

const [DATABASE, STORE] = ["npdraw", "work"];
const PAUSE = 200; // milliseconds from a change to its writing

/** @typedef {{drawings: import("./drawing.js").Drawing[], index: number, settings: object}} Kept */

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
const done = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

async function database() {
  const request = indexedDB.open(DATABASE, 1);
  request.onupgradeneeded = () => request.result.createObjectStore(STORE);
  return done(request);
}

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

  /** What was kept before, or null. @returns {Promise<Kept | null>} */
  async before() {
    const store = this.database?.transaction(STORE).objectStore(STORE);
    return (store && (await done(store.get(this.weights)).catch(() => null))) ?? null;
  }

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

/** Requests to the server. What goes wrong with them is a sentence for the person. */

/**
 * @typedef {object} Model the answer of GET /api/model
 * @property {string} name
 * @property {string} weights 16 hex digits
 * @property {string} bank digest of the parts
 * @property {number} height of the picture
 * @property {number} width
 * @property {number} channels
 * @property {{height: number, width: number}} canvas
 * @property {{rows: number, columns: number, part: number, top: number, left: number}} grid
 * @property {number} parts
 * @property {number} temperature
 * @property {boolean} inverted
 * @property {boolean} ink
 * @property {Flow | null} flow null if the decoder is not a flow
 * @property {{upload_bytes: number, samples: number, endings: number, particles: number}} limits
 */

/**
 * @typedef {object} Flow what the answer says about a flow
 * @property {number} evaluations
 * @property {number} preview evaluations of a preview
 * @property {number} glance evaluations of a picture while the drawing changes
 * @property {number} own the model's own freedom, which samples and endings use
 * @property {boolean} free whether the flow has learned any freedom
 */

/**
 * @typedef {object} Reading the answer of POST /api/read for an image
 * @property {string} image as the model sees it, PNG in base64
 * @property {string} pixels the same, raw, in base64
 * @property {number[]} parse
 * @property {number[]} posterior
 * @property {{cells: number[], seed?: number} | null} drawing that the file carries
 */

/** What a person should read. The message is one sentence. */
export class Trouble extends Error {}

/** The server does not answer at all. */
export class Gone extends Trouble {}

const GONE = "The server does not answer. Is npdraw studio still running?";
const BUSY = "The server is busy. Try again in a moment.";
const WAITS = [250, 750, 1500]; // milliseconds between attempts while the server is busy

/** The token of a link to another machine. It is kept for this tab and removed from the address. */
function token() {
  const address = new URL(location.href);
  const given = address.searchParams.get("token");
  if (given) {
    sessionStorage.setItem("npdraw-token", given);
    address.searchParams.delete("token");
    history.replaceState(null, "", address);
  }
  return sessionStorage.getItem("npdraw-token");
}

const bearer = token();

/** @param {number} milliseconds @param {AbortSignal} [signal] */
export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });
}

/** @param {Response} answer */
const isBusy = (answer) => answer.status === 429 || answer.status === 503;

/** @param {Response} answer @returns {Promise<string>} */
async function refusal(answer) {
  if (isBusy(answer)) return BUSY;
  const said = await answer.json().catch(() => ({}));
  const text = typeof said.error === "string" ? said.error : `the server answered ${answer.status}`;
  return text[0].toUpperCase() + text.slice(1) + (/[.?!]$/.test(text) ? "" : ".");
}

/**
 * GET, or POST if there is a body. Bytes are sent as they are, anything else as JSON.
 * @param {string} path @param {unknown} [body] @param {AbortSignal} [signal]
 * @returns {Promise<Response>}
 */
async function ask(path, body, signal) {
  const raw = body instanceof Blob || ArrayBuffer.isView(body);
  /** @type {Record<string, string>} */
  const headers = bearer ? { Authorization: `Bearer ${bearer}` } : {};
  if (body !== undefined) headers["Content-Type"] = raw ? "application/octet-stream" : "application/json";
  for (let attempt = 0; ; attempt++) {
    const answer = await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined || raw ? /** @type {BodyInit} */ (body) : JSON.stringify(body),
      signal,
    }).catch((error) => {
      throw error.name === "AbortError" ? error : new Gone(GONE);
    });
    if (answer.ok) return answer;
    if (!isBusy(answer) || attempt === WAITS.length) throw new Trouble(await refusal(answer));
    await pause(WAITS[attempt], signal);
  }
}

/** @param {string} path @param {unknown} [body] @param {AbortSignal} [signal] */
const json = async (path, body, signal) => (await ask(path, body, signal)).json();
/** @param {string} path @param {unknown} [body] @param {AbortSignal} [signal] */
const blob = async (path, body, signal) => (await ask(path, body, signal)).blob();

export const api = {
  /** @returns {Promise<Model>} */
  model: () => json("/api/model"),
  /** @returns {Promise<{pixels: string, order: number[]}>} */
  parts: () => json("/api/parts"),
  /** A picture to show as it is. @param {object} wish @param {AbortSignal} signal */
  decode: (wish, signal) => blob("/api/decode", wish, signal),
  /** A picture as raw pixels. @param {object} wish @param {AbortSignal} signal */
  pixels: async (wish, signal) =>
    new Uint8Array(await (await ask("/api/decode", { ...wish, raw: true }, signal)).arrayBuffer()),
  /** @param {number[]} cells @param {number} cell @param {AbortSignal} signal
   *  @returns {Promise<{what: number[], whether: number}>} */
  next: (cells, cell, signal) => json("/api/next", { cells, cell }, signal),
  /** @param {object} wish @param {AbortSignal} signal
   *  @returns {Promise<{samples: import("./gallery.js").Sample[]}>} */
  sample: (wish, signal) => json("/api/sample", wish, signal),
  /** @param {object} wish @param {AbortSignal} signal
   *  @returns {Promise<{endings: import("./endings.js").Ending[]}>} */
  complete: (wish, signal) => json("/api/complete", wish, signal),
  /** @param {Blob} file
   *  @returns {Promise<Reading>} */
  read: (file) => json("/api/read", file),
  /** @param {Uint8Array} pixels @param {AbortSignal} signal @returns {Promise<{cells: number[]}>} */
  draw: (pixels, signal) => json("/api/draw", pixels, signal),
  /** @param {object} wish */
  export: (wish) => blob("/api/export", wish),
};

/**
 * Runs one job at a time, and the newest one next. When a newer job comes, an older one that waits is dropped. One that
 * runs has `patience` more milliseconds before it is aborted, so that a hand that is faster than the server still sees
 * pictures. With `Infinity` it always ends.
 */
export class Latest {
  /** @type {AbortController | null} */ #running = null;
  /** @type {((signal: AbortSignal) => Promise<void>) | null} */ #waiting = null;
  /** @type {number | undefined} */ #timer;

  /** @param {number} patience @param {(error: Error) => void} failed */
  constructor(patience, failed) {
    this.patience = patience;
    this.failed = failed;
  }

  get busy() {
    return this.#running !== null;
  }

  /** Whether a newer job waits for the one that runs. */
  get waits() {
    return this.#waiting !== null;
  }

  /** @param {(signal: AbortSignal) => Promise<void>} job */
  async run(job) {
    this.#waiting = job;
    if (this.#running) {
      const running = this.#running;
      if (this.patience < Infinity) this.#timer ??= setTimeout(() => running.abort(), this.patience);
      return;
    }
    while (this.#waiting) {
      const next = this.#waiting;
      const { signal } = (this.#running = new AbortController());
      this.#waiting = null;
      await next(signal).catch((error) => signal.aborted || this.failed(error));
      clearTimeout(this.#timer);
      this.#timer = undefined;
      this.#running = null;
    }
  }

  cancel() {
    this.#waiting = null;
    this.#running?.abort();
  }
}

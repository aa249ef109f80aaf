/** A server that does not answer: the page says so, waits for it, and goes on when it is back. */

import { Gone, api, pause } from "./api.js";
import { complain, say } from "./words.js";

const KNOCK = 2000; // milliseconds between questions whether it is back

/** What to do with errors. @param {string} weights of the model @param {() => void} returned when the server is back
 * @returns {(error: Error) => void} */
export function watch(weights, returned) {
  let away = false;

  async function wait() {
    for (;;) {
      await pause(KNOCK);
      const model = await api.model().catch((error) => (error instanceof Gone ? null : Promise.reject(error)));
      if (model) return model.weights === weights;
    }
  }

  return async (error) => {
    complain(error);
    if (away || !(error instanceof Gone)) return;
    away = true;
    try {
      if (!(await wait())) return say("The server has another model now. Load the page again.", "trouble", true);
      say("The server is back.");
      returned();
    } catch (other) {
      complain(/** @type {Error} */ (other));
    } finally {
      away = false;
    }
  };
}

/** New drawings by seed: the form with seed, temperature and top-p, and the samples from that seed on. */

import { Latest, api } from "./api.js";

const COUNT = 24;
const SEEDS = 10000; // a die's seeds are short enough to remember

/** @param {string} id */
const field = (id) => /** @type {HTMLInputElement} */ (document.getElementById(id));

export class Gallery {
  #seed = field("seed");
  #temperature = field("temperature");
  #topP = field("top-p");

  /**
   * @param {HTMLElement} list @param {import("./api.js").Model} model
   * @param {{told: () => object, open: (cells: number[], seed: number) => void, failed: (error: Error) => void}} on
   */
  constructor(list, model, on) {
    this.list = list;
    this.on = on;
    this.count = Math.min(COUNT, model.limits.samples);
    this.latest = new Latest(0, (error) => {
      list.ariaBusy = "false";
      on.failed(error);
    });
    list.replaceChildren(...Array.from({ length: this.count }, () => document.createElement("li")));
    this.#temperature.value = String(model.temperature);
    for (const slider of [this.#temperature, this.#topP]) {
      slider.addEventListener("input", () => this.#label());
      slider.addEventListener("change", () => this.fill(false));
    }
    field("dice").addEventListener("click", () => this.roll());
    field("new").addEventListener("submit", (event) => {
      event.preventDefault();
      this.fill(true);
    });
    this.#label();
  }

  get temperature() {
    return this.#temperature.valueAsNumber;
  }

  /** A new drawing from a random seed. */
  roll() {
    this.#seed.value = String(Math.floor(Math.random() * SEEDS));
    this.fill(true);
  }

  /** Samples of the form's seed and those after it. @param {boolean} open whether the first becomes the drawing */
  fill(open) {
    if (!this.#seed.reportValidity()) return;
    this.list.ariaBusy = "true";
    this.latest.run(async (signal) => {
      const [seed, top_p] = [this.#seed.valueAsNumber, this.#topP.valueAsNumber];
      const wish = { seed, count: this.count, temperature: this.temperature, top_p };
      const { samples } = await api.sample({ ...wish, ...this.on.told() }, signal);
      this.list.ariaBusy = "false";
      this.list.replaceChildren(...samples.map((sample) => this.#entry(sample)));
      if (open) this.on.open(samples[0].cells, samples[0].seed);
    });
  }

  #label() {
    field("temperature-out").value = this.temperature.toFixed(2);
    field("top-p-out").value = this.#topP.valueAsNumber.toFixed(2);
  }

  /** @param {{seed: number, cells: number[], image: string}} sample */
  #entry({ seed, cells, image }) {
    const [entry, button, picture] = [document.createElement("li"), document.createElement("button"), new Image()];
    picture.src = `data:image/png;base64,${image}`;
    picture.alt = `Sample of seed ${seed}`;
    button.className = "thumb";
    button.title = `Open the sample of seed ${seed}`;
    button.append(picture);
    button.addEventListener("click", () => this.on.open(cells, seed));
    entry.append(button);
    return entry;
  }
}

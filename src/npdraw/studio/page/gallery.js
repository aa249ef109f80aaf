/** New drawings by seed: the form with seed, temperature and top-p, and the samples from that seed on. A flow's
 * samples are shown as sketches first. Previews of their pictures follow one by one, when the person asks for nothing
 * else. */

import { Latest, api } from "./api.js";

const COUNT = 24;
const SEEDS = 10000; // the die's seeds are short enough to remember

/** @typedef {{seed: number, sketch: number[], image: string | null}} Sample image: null if none was requested */

/** @param {string} id */
const field = (id) => /** @type {HTMLInputElement} */ (document.getElementById(id));

export class Gallery {
  #seed = field("seed");
  #temperature = field("temperature");
  #topP = field("top-p");

  /**
   * @param {HTMLElement} list @param {import("./bank.js").Bank} bank
   * @param {{told: object, open: (sample: Sample) => void, failed: (error: Error) => void}} on
   *   told: fields of requests for thumbnails
   */
  constructor(list, bank, on) {
    const { model } = bank;
    this.list = list;
    this.bank = bank;
    this.on = on;
    this.count = Math.min(COUNT, model.limits.samples);
    this.failed = false; // whether the last samples could not be made
    this.latest = new Latest(0, (error) => {
      this.failed = true;
      list.ariaBusy = "false";
      on.failed(error);
    });
    list.replaceChildren(...Array.from({ length: this.count }, () => document.createElement("li")));
    this.#temperature.value = String(model.temperature);
    for (const slider of [this.#temperature, this.#topP]) {
      slider.addEventListener("input", () => this.#label());
      slider.addEventListener("change", () => this.fill());
    }
    field("dice").addEventListener("click", () => this.roll());
    field("new").addEventListener("submit", (event) => {
      event.preventDefault();
      this.fill(on.open);
    });
    this.#label();
  }

  get temperature() {
    return this.#temperature.valueAsNumber;
  }

  /** The form's values, to be kept. */
  get settings() {
    return { seed: this.#seed.value, temperature: this.#temperature.value, topP: this.#topP.value };
  }

  set settings({ seed, temperature, topP }) {
    this.#seed.value = seed;
    this.#temperature.value = temperature;
    this.#topP.value = topP;
    this.#label();
  }

  /** Make a new drawing from a random seed. */
  roll() {
    this.#seed.value = String(Math.floor(Math.random() * SEEDS));
    this.fill(this.on.open);
  }

  /** Show samples of the form's seed and the seeds after it.
   * @param {(sample: Sample) => void} [open] what to do with the first */
  fill(open) {
    if (!this.#seed.reportValidity()) return;
    this.list.ariaBusy = "true";
    this.latest.run(async (signal) => {
      this.failed = false;
      const [seed, top_p] = [this.#seed.valueAsNumber, this.#topP.valueAsNumber];
      const wish = { seed, count: this.count, temperature: this.temperature, top_p };
      const { samples } = await api.sample({ ...wish, images: !this.bank.model.flow }, signal);
      this.list.ariaBusy = "false";
      this.list.replaceChildren(...samples.map((sample) => this.#entry(sample)));
      open?.(samples[0]);
      const pictures = this.list.querySelectorAll("img");
      for (const [i, { sketch, seed, image }] of samples.entries()) {
        if (image) continue;
        const wish = { cells: sketch, seed, ...this.on.told, sketch: true, patient: true };
        pictures[i].src = URL.createObjectURL(await api.decode(wish, signal));
      }
    });
  }

  #label() {
    field("temperature-out").value = this.temperature.toFixed(2);
    field("top-p-out").value = this.#topP.valueAsNumber.toFixed(2);
  }

  /** @param {Sample} sample */
  #entry(sample) {
    const { seed, sketch, image } = sample;
    const [entry, button, picture] = [document.createElement("li"), document.createElement("button"), new Image()];
    picture.src = image ? `data:image/png;base64,${image}` : this.bank.thumbnail(sketch).toDataURL();
    picture.addEventListener("load", () => URL.revokeObjectURL(picture.src));
    picture.alt = `Sample of seed ${seed}`;
    button.className = "thumb";
    button.title = `Open the sample of seed ${seed}`;
    button.append(picture);
    button.addEventListener("click", () => this.on.open(sample));
    entry.append(button);
    return entry;
  }
}

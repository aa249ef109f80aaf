/** A picture as raw pixels, as the server gives and takes them: height, width, channels. */

/** @typedef {import("./api.js").Model} Model */

/** @param {string} text base64 */
export const fromBase64 = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

/** @param {Uint8Array} bytes */
export const toBase64 = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));

/** @param {Uint8ClampedArray} rgba @param {Model} model */
export function fromImage(rgba, { channels }) {
  const length = (rgba.length / 4) * channels;
  return Uint8Array.from({ length }, (_, i) => rgba[4 * Math.floor(i / channels) + (i % channels)]);
}

/** @param {Uint8Array} pixels @param {Model} model */
export function toImage(pixels, { width, height, channels }) {
  const image = new ImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = pixels[channels * i + (c % channels)];
    image.data[4 * i + 3] = 255;
  }
  return image;
}

/** The strip that says how busy the server is, from its own metrics, once a second while the page is seen. */

import { get } from "./api.js";

const PERIOD_MS = 1000;
const MOST_SHOWN = 60;

/** @param {(name: string) => HTMLElement} find by id */
export function watchServer(find) {
  const strip = find("live");
  /** @type {{at: number, tokens: number} | null} */
  let last = null;
  /** @type {number[]} */
  const rates = [];

  async function look() {
    if (document.visibilityState !== "visible") {
      last = null;
      return;
    }
    try {
      const now = await get("/console/live");
      const at = performance.now();
      const rate = last ? Math.max(0, (1000 * (now.tokens - last.tokens)) / (at - last.at)) : 0;
      last = { at, tokens: now.tokens };
      rates.push(rate);
      if (rates.length > MOST_SHOWN) rates.shift();
      find("live-queued").textContent = String(now.queued);
      find("live-rows").textContent = String(now.rows);
      find("live-tokens").textContent = String(Math.round(rate));
      const most = Math.max(10, ...rates);
      const points = rates.map((one, index) => `${index},${(19 - (18 * one) / most).toFixed(1)}`);
      find("live-trace").firstElementChild?.setAttribute("points", points.join(" "));
      strip.classList.remove("is-away");
    } catch {
      strip.classList.add("is-away");
      last = null;
    }
  }

  look();
  setInterval(look, PERIOD_MS);
}

/** Languages to choose from, and the cards of the models. */

import { get, getText } from "./api.js";
import { element, nameOf } from "./details.js";

export class Models {
  /** @type {Record<string, string[]>} what each language can be translated into */
  targets = {};
  /** @type {{name: string, version: string, source: string, target: string, precision: string, device: string}[]} */
  models = [];

  /** @param {HTMLSelectElement} source @param {HTMLSelectElement} target */
  constructor(source, target) {
    this.source = source;
    this.target = target;
  }

  /** Ask what there is, and offer it. */
  async load() {
    Object.assign(this, await get("/console/models"));
    const chosen = this.source.value;
    this.source.replaceChildren(this.source.options[0], ...Object.keys(this.targets).map(optionOf));
    this.source.value = chosen in this.targets ? chosen : "";
    this.offerTargets();
  }

  /** Offer the languages that the source can be translated into. @param {string} [detected] where none is chosen */
  offerTargets(detected = "") {
    const source = this.source.value || detected;
    const all = this.targets[source] ?? [...new Set(Object.values(this.targets).flat())];
    const chosen = this.target.value;
    this.target.replaceChildren(...all.map(optionOf));
    if (all.includes(chosen)) this.target.value = chosen;
  }

  /** Say which language was detected, or that one would be. @param {string} code */
  showDetected(code) {
    this.source.options[0].textContent = code ? `${nameOf(code)} (detected)` : "Detect language";
  }

  /** Exchange the languages. @param {string} detected */
  swap(detected) {
    const [source, target] = [this.source.value || detected, this.target.value];
    if (!(target in this.targets) || !source) return false;
    this.source.value = target;
    this.offerTargets();
    this.target.value = source;
    return this.target.value === source;
  }

  /** Fill the dialog with the models. @param {HTMLElement} list @param {HTMLElement} card */
  showCards(list, card) {
    const buttons = this.models.map((model) => {
      const { name, version, source, target, precision, device } = model;
      const button = element("button", `${name} ${version}: ${nameOf(source)} → ${nameOf(target)}, ${precision}, ${device}`);
      button.type = "button";
      button.addEventListener("click", async () => {
        for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
        card.textContent = await getText(`/console/card?model=${encodeURIComponent(name)}`).catch((error) => error.message);
      });
      return button;
    });
    list.replaceChildren(...buttons);
    buttons[0]?.click();
  }
}

/** @param {string} code */
function optionOf(code) {
  const option = /** @type {HTMLOptionElement} */ (element("option", nameOf(code)));
  option.value = code;
  return option;
}

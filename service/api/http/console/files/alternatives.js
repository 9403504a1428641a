/** The list of other ways in which a translation can go on from a word. */

import { post } from "./api.js";

const SHOWN_CHARACTERS = 60;

export class Alternatives {
  #abort = new AbortController();
  /** @type {HTMLElement | null} where the focus was */
  #opener = null;
  /** @type {(text: string) => void} */
  #choose = () => {};
  #selected = 0;

  /** @param {HTMLElement} list */
  constructor(list) {
    this.list = list;
    list.addEventListener("keydown", (event) => this.#press(event));
    list.addEventListener("click", (event) => this.#take(event.target));
    document.addEventListener("pointerdown", (event) => {
      if (!list.hidden && !list.contains(/** @type {Node} */ (event.target))) this.close(false);
    });
  }

  /**
   * Ask for the alternatives and show them at a word; `choose` is given the whole translation that was chosen.
   * @param {HTMLElement} opener @param {{text: string, prefix: string, current: string, source: string, target: string}} asked
   * @param {(text: string) => void} choose
   */
  async open(opener, asked, choose) {
    this.#abort.abort();
    const abort = (this.#abort = new AbortController());
    [this.#opener, this.#choose] = [opener, choose];
    this.#show([note("Looking for alternatives …")]);
    this.#stand(opener);
    this.list.focus();
    try {
      const { current, ...body } = asked;
      const { alternatives } = await post("/console/alternatives", body, abort.signal);
      if (abort.signal.aborted) return;
      const others = alternatives.filter((text) => text !== current && text.startsWith(asked.prefix));
      this.#show(others.length ? others.map((text, index) => option(text, asked.prefix, index)) : [note("There is no other one.")]);
      this.#select(0);
    } catch (error) {
      if (!abort.signal.aborted) this.#show([note(error.message)]);
    }
    this.#stand(opener);
  }

  /** @param {boolean} returnsFocus */
  close(returnsFocus = true) {
    this.#abort.abort();
    this.list.hidden = true;
    if (returnsFocus) this.#opener?.focus();
  }

  get #options() {
    return [...this.list.querySelectorAll("[role=option]:not([aria-disabled])")];
  }

  #show(items) {
    this.list.replaceChildren(...items);
    this.list.removeAttribute("aria-activedescendant");
    this.list.hidden = false;
  }

  #stand(opener) {
    const at = opener.getBoundingClientRect();
    const left = Math.min(at.left, document.documentElement.clientWidth - this.list.offsetWidth - 8);
    this.list.style.left = `${Math.max(8, left) + scrollX}px`;
    this.list.style.top = `${at.bottom + scrollY + 6}px`;
  }

  #select(index) {
    const options = this.#options;
    if (!options.length) return;
    this.#selected = (index + options.length) % options.length;
    options.forEach((one, number) => one.setAttribute("aria-selected", String(number === this.#selected)));
    this.list.setAttribute("aria-activedescendant", options[this.#selected].id);
    options[this.#selected].scrollIntoView({ block: "nearest" });
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in steps) this.#select(this.#selected + steps[event.key]);
    else if (event.key === "Enter") this.#take(this.#options[this.#selected]);
    else if (event.key === "Escape" || event.key === "Tab") this.close();
    else return;
    event.preventDefault();
  }

  #take(target) {
    const chosen = target?.closest?.("[role=option]:not([aria-disabled])");
    if (!chosen) return;
    this.close();
    this.#choose(chosen.dataset.text);
  }
}

/** An entry that shows how the translation goes on, its first word in bold. */
function option(text, prefix, index) {
  const item = document.createElement("li");
  const rest = text.slice(prefix.trimEnd().length).trimStart();
  const [first] = rest.match(/^\S+/) ?? [""];
  const bold = document.createElement("b");
  bold.textContent = first;
  const more = rest.slice(first.length);
  item.append(bold, more.length > SHOWN_CHARACTERS ? `${more.slice(0, SHOWN_CHARACTERS)}…` : more);
  item.id = `alternative-${index}`;
  item.dataset.text = text;
  item.setAttribute("role", "option");
  return item;
}

/** An entry that cannot be chosen. @param {string} text */
function note(text) {
  const item = document.createElement("li");
  item.textContent = text;
  item.setAttribute("role", "option");
  item.setAttribute("aria-disabled", "true");
  return item;
}

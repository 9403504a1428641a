/** The translation on the page, word by word: what lights up, where the focus is, which word was chosen. */

import { wordsOf } from "./words.js";

const STEPS = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8 };

export class Output extends EventTarget {
  /** @type {HTMLElement[]} */
  #words = [];
  #focused = 0;
  #doubtful = 0.4; // below this quality a sentence is underlined

  /** @param {HTMLElement} element */
  constructor(element) {
    super();
    this.element = element;
    for (const [type, isOn] of [["pointerover", true], ["pointerout", false], ["focusin", true], ["focusout", false]]) {
      element.addEventListener(type, (event) => this.#point(event.target, isOn));
    }
    element.addEventListener("keydown", (event) => this.#move(event));
    element.addEventListener("click", (event) => this.#choose(event.target));
  }

  /** Show a translation. @param {import("./translator.js").Translator} translator */
  show(translator) {
    const hadFocus = this.element.contains(document.activeElement);
    const { parts, rest } = translator.parts();
    const isPlain = translator.wish.format === "plain";
    this.#words = [];
    const nodes = parts.flatMap(({ between, place }, index) => {
      const source = translator.wish.text.slice(place.begin, place.end);
      return [between, this.#sentence(place.sentence, index, source, isPlain && !place.sentence?.pivot)];
    });
    this.element.replaceChildren(...nodes, rest);
    this.#focused = Math.min(this.#focused, Math.max(0, this.#words.length - 1));
    if (this.#words.length) this.#words[this.#focused].tabIndex = 0;
    if (hadFocus) this.#words[this.#focused]?.focus();
  }

  /** The text as it stands there. */
  get text() {
    return this.element.textContent ?? "";
  }

  /** Light up the words of a sentence that these places of the source are linked to. */
  light(index, sentence, begin, end) {
    const targets = sentence?.links.filter(([from, to]) => from < end && begin < to) ?? [];
    for (const word of this.#words) {
      const { from, to } = place(word);
      const isLinked = Number(word.dataset.sentence) === index && targets.some(([, , c, d]) => c < to && from < d);
      word.classList.toggle("is-linked", isLinked);
    }
  }

  /** Light up nothing. */
  unlight() {
    for (const word of this.#words) word.classList.remove("is-linked");
  }

  #sentence(sentence, index, source, hasWords) {
    const element = document.createElement("span");
    element.className = "sentence";
    element.dataset.sentence = String(index);
    if (!sentence) {
      element.classList.add("is-pending");
      element.textContent = "… ".padEnd(Math.min(source.length, 60), "· ");
      return element;
    }
    element.classList.toggle("is-failed", Boolean(sentence.error));
    element.classList.toggle("is-chosen", Boolean(sentence.isChosen));
    const isDoubtful = sentence.warnings.length > 0 || (sentence.quality ?? 1) < this.#doubtful;
    element.classList.toggle("is-doubtful", isDoubtful && !sentence.error);
    if (hasWords && !sentence.error) element.append(...this.#wordsOf(sentence, index));
    else element.textContent = sentence.text;
    return element;
  }

  #wordsOf(sentence, index) {
    return wordsOf(sentence.text).map(({ text, begin, isWord }) => {
      if (!isWord) return text;
      const word = document.createElement("span");
      word.className = "word";
      word.textContent = text;
      word.tabIndex = -1;
      word.setAttribute("role", "button");
      word.setAttribute("aria-haspopup", "listbox");
      Object.assign(word.dataset, { sentence: index, from: begin, to: begin + text.length });
      this.#words.push(word);
      return word;
    });
  }

  #point(target, isOn) {
    const word = wordAt(target);
    if (!word) return;
    const { from, to } = place(word);
    if (isOn && word === document.activeElement) this.#focus(this.#words.indexOf(word));
    this.#tell(isOn ? "point" : "leave", { index: Number(word.dataset.sentence), from, to });
  }

  #choose(target) {
    const word = wordAt(target);
    if (!word) return;
    this.#focus(this.#words.indexOf(word));
    word.focus();
    const { from, to } = place(word);
    this.#tell("choose", { index: Number(word.dataset.sentence), from, to, word });
  }

  #move(event) {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.#choose(event.target);
      return;
    }
    const last = this.#words.length - 1;
    const ends = { Home: 0, End: last };
    if (!(event.key in STEPS || event.key in ends) || last < 0) return;
    event.preventDefault();
    const next = ends[event.key] ?? Math.min(last, Math.max(0, this.#focused + STEPS[event.key]));
    this.#focus(next);
    this.#words[next].focus();
  }

  #focus(index) {
    if (this.#words[this.#focused]) this.#words[this.#focused].tabIndex = -1;
    this.#focused = index;
    this.#words[index].tabIndex = 0;
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** @param {HTMLElement} word */
function place(word) {
  return { from: Number(word.dataset.from), to: Number(word.dataset.to) };
}

/** @param {EventTarget | null} target @returns {HTMLElement | null} */
function wordAt(target) {
  return target instanceof HTMLElement && target.classList.contains("word") ? target : null;
}

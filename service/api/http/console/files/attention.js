/** What each attention head of the model looks at: all heads as small pictures, one of them as a table. */

import { post } from "./api.js";

const FAR = 4; // tokens between a word and what it looks at, that the picture begins with
const END = "end";

/** @typedef {{weights: Uint8Array, layers: number, heads: number, rows: string[], columns: string[]}} Part */

export class Attention {
  /** @type {Record<string, Part>} */
  #parts = {};
  #part = "encoder";
  #shown = { layer: 0, head: 0 };
  #cell = { row: 0, column: 0 };
  #abort = new AbortController();

  /** @param {HTMLElement} article */
  constructor(article) {
    this.article = article;
    this.find = (selector) => /** @type {HTMLElement} */ (article.querySelector(selector));
    for (const button of article.querySelectorAll("[data-part]")) {
      button.addEventListener("click", () => this.#usePart(button.dataset.part));
    }
    const heat = this.find("#heat");
    for (const type of ["pointerover", "click"]) heat.addEventListener(type, (event) => this.#point(event.target));
    this.find("#strongest").addEventListener("click", () => this.#showStrongest());
  }

  /** Show nothing any more. */
  clear() {
    this.#abort.abort();
    this.find("#attention-view").hidden = true;
    this.find("#attention-sentence").textContent = "Choose a sentence to see what each head of the model looks at.";
  }

  /** Ask for the weights of a sentence and show them. @param {object} asked text, translation, source and target */
  async show(asked) {
    this.clear();
    const abort = (this.#abort = new AbortController());
    try {
      const { heads } = await post("/console/score", { ...asked, heads: true }, abort.signal);
      this.#parts = partsOf(heads);
      this.find("#attention-sentence").textContent = asked.text;
      this.find("#attention-view").hidden = false;
      this.#usePart(this.#part);
    } catch (error) {
      if (!abort.signal.aborted) this.find("#attention-sentence").textContent = `No picture: ${error.message}`;
    }
  }

  #usePart(name) {
    this.#part = name;
    for (const button of this.article.querySelectorAll("[data-part]")) {
      button.setAttribute("aria-pressed", String(button.dataset.part === name));
    }
    this.#drawHeads();
    const { layer, head, row, column } = mostTelling(this.#parts[name], name === "encoder" ? FAR : 0);
    this.#cell = { row, column };
    this.#useHead(layer, head);
  }

  #drawHeads() {
    const part = this.#parts[this.#part];
    const all = this.find("#heads");
    all.style.gridTemplateColumns = `repeat(${part.heads}, minmax(0, 1fr))`;
    const buttons = [];
    for (let layer = 0; layer < part.layers; layer++) {
      for (let head = 0; head < part.heads; head++) buttons.push(this.#headButton(part, layer, head));
    }
    all.replaceChildren(...buttons);
  }

  #headButton(part, layer, head) {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.at = `${layer}.${head}`;
    button.setAttribute("aria-label", `Layer ${layer + 1}, head ${head + 1}`);
    button.append(thumbnail(part, layer, head));
    button.addEventListener("click", () => this.#useHead(layer, head));
    button.addEventListener("keydown", (event) => this.#moveAmongHeads(event, part, layer, head));
    return button;
  }

  /** Arrow keys move among the heads; the group is one stop of the Tab key. */
  #moveAmongHeads(event, part, layer, head) {
    const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const [down, right] = steps[event.key];
    this.#useHead((layer + down + part.layers) % part.layers, (head + right + part.heads) % part.heads, true);
  }

  #useHead(layer, head, takesFocus = false) {
    this.#shown = { layer, head };
    for (const button of this.find("#heads").children) {
      const isShown = button.dataset.at === `${layer}.${head}`;
      button.setAttribute("aria-pressed", String(isShown));
      button.tabIndex = isShown ? 0 : -1;
      if (isShown && takesFocus) button.focus();
    }
    this.#drawTable();
    this.#describe();
  }

  #drawTable() {
    const part = this.#parts[this.#part];
    const { layer, head } = this.#shown;
    const caption = document.createElement("caption");
    caption.textContent = `Layer ${layer + 1}, head ${head + 1}: each row looks at the columns`;
    const top = row([document.createElement("td"), ...part.columns.map((text) => headerOf(text, "col"))]);
    const rows = part.rows.map((text, q) => {
      const cells = part.columns.map((_, m) => cell(weight(part, layer, head, q, m), q, m));
      return row([headerOf(text, "row"), ...cells]);
    });
    const [first, body] = [document.createElement("thead"), document.createElement("tbody")];
    first.append(top);
    body.append(...rows);
    this.find("#heat").replaceChildren(caption, first, body);
  }

  #point(target) {
    if (!(target instanceof HTMLTableCellElement) || !target.dataset.row) return;
    this.#cell = { row: Number(target.dataset.row), column: Number(target.dataset.column) };
    this.#describe();
  }

  #describe() {
    const part = this.#parts[this.#part];
    const { layer, head } = this.#shown;
    for (const one of this.find("#heat").querySelectorAll(".is-here")) one.classList.remove("is-here");
    const { row: q, column: m } = this.#cell;
    this.find(`#heat td[data-row="${q}"][data-column="${m}"]`).classList.add("is-here");
    const share = Math.round(100 * weight(part, layer, head, q, m));
    this.find("#heat-text").textContent = `“${part.rows[q]}” looks at “${part.columns[m]}” with ${share} %`;
  }

  #showStrongest() {
    const best = strongest(this.#parts[this.#part], this.#cell.row, this.#cell.column);
    this.#useHead(best.layer, best.head);
  }
}

/** @returns {Record<string, Part>} */
function partsOf(heads) {
  const [source, target] = [heads.source, heads.target].map((tokens) => tokens.map((text) => text.trim() || END));
  return { encoder: partOf(heads.encoder, heads.num_heads, source, source), cross: partOf(heads.cross, heads.num_heads, target, source) };
}

/** @returns {Part} */
function partOf(base64, heads, rows, columns) {
  const weights = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  return { weights, heads, rows, columns, layers: weights.length / (heads * rows.length * columns.length) };
}

/** Return where a head looks hardest from one word at another, which is so many tokens away. @param {Part} part */
function mostTelling(part, distance) {
  const isWord = (text) => text !== END && /\p{L}/u.test(text);
  let best = { layer: 0, head: 0, row: 0, column: 0, weight: -1 };
  part.rows.forEach((from, row) => {
    part.columns.forEach((to, column) => {
      if (!isWord(from) || !isWord(to) || Math.abs(row - column) < distance) return;
      const found = strongest(part, row, column);
      if (found.weight > best.weight) best = { ...found, row, column };
    });
  });
  return best;
}

/** Return the head that looks most from one token at another. @param {Part} part */
function strongest(part, row, column) {
  let best = { layer: 0, head: 0, weight: -1 };
  for (let layer = 0; layer < part.layers; layer++) {
    for (let head = 0; head < part.heads; head++) {
      const found = weight(part, layer, head, row, column);
      if (found > best.weight) best = { layer, head, weight: found };
    }
  }
  return best;
}

/** From 0 to 1. @param {Part} part */
function weight(part, layer, head, q, m) {
  return part.weights[((layer * part.heads + head) * part.rows.length + q) * part.columns.length + m] / 255;
}

/** @param {Part} part */
function thumbnail(part, layer, head) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [part.columns.length, part.rows.length];
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const colour = getComputedStyle(document.documentElement).getPropertyValue("--heat").split(" ").map(Number);
  const image = context.createImageData(canvas.width, canvas.height);
  for (let q = 0; q < part.rows.length; q++) {
    for (let m = 0; m < part.columns.length; m++) {
      image.data.set([...colour, 255 * weight(part, layer, head, q, m)], 4 * (q * part.columns.length + m));
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

function row(cells) {
  const element = document.createElement("tr");
  element.append(...cells);
  return element;
}

function headerOf(text, scope) {
  const element = document.createElement("th");
  element.scope = scope;
  element.textContent = text;
  return element;
}

function cell(value, q, m) {
  const element = document.createElement("td");
  element.style.setProperty("--weight", value.toFixed(3));
  element.dataset.row = q;
  element.dataset.column = m;
  element.setAttribute("aria-label", `${Math.round(100 * value)} %`);
  return element;
}

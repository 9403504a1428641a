/** Beside the translation: quality and warnings of each sentence, and where the time went. */

const PHASES = ["tokenize", "queue", "encode", "decode", "detokenize"];

/**
 * List the sentences; `choose` is called with the one whose attention is to be shown.
 * @param {HTMLElement} list @param {import("./translator.js").Place[]} places
 * @param {(sentence: import("./translator.js").Sentence) => void} choose
 */
export function listSentences(list, places, choose) {
  const found = places.map((place) => place.sentence).filter((sentence) => sentence !== null);
  list.replaceChildren(...found.map((sentence) => entry(sentence, choose)));
}

function entry(sentence, choose) {
  const item = document.createElement("li");
  item.append(element("span", sentence.text.trim(), "text"));
  if (sentence.quality !== null) {
    const meter = Object.assign(document.createElement("meter"), { min: 0, max: 1, low: 0.4, high: 0.7, optimum: 1 });
    meter.value = sentence.quality;
    meter.title = `Estimated quality ${Math.round(100 * sentence.quality)} %`;
    meter.setAttribute("aria-label", `Estimated quality of “${sentence.text}”`);
    meter.textContent = `${Math.round(100 * sentence.quality)} %`;
    item.append(meter);
  }
  if (sentence.links.length) {
    const button = element("button", "Attention");
    button.type = "button";
    button.setAttribute("aria-label", `Show the attention for “${sentence.source}”`);
    button.addEventListener("click", () => choose(sentence));
    item.append(button);
  }
  const notes = sentence.warnings.map((warning) => `${warning.kind.replaceAll("_", " ")}: ${warning.message}`);
  if (sentence.pivot) notes.push(`translated through ${nameOf(sentence.pivot)}`);
  if (sentence.isChosen) notes.push("an alternative that you chose");
  if (sentence.error) notes.push(sentence.error);
  item.append(...notes.map((text) => element("span", text, "warning")));
  return item;
}

/**
 * List the warnings of a document; nothing is shown where there are none.
 * @param {HTMLElement} section @param {HTMLElement} list
 * @param {{kind: string, message: string, part?: string, line: number, source: string}[]} report
 */
export function listWarnings(section, list, report) {
  section.hidden = !report.length;
  list.replaceChildren(
    ...report.map(({ kind, message, part, line, source }) => {
      const item = element("li", source, "text");
      item.append(element("span", `${part ?? "line"} ${line}, ${kind.replaceAll("_", " ")}: ${message}`, "warning"));
      return item;
    }),
  );
}

/** Show where the time went. @param {HTMLElement} bar @param {HTMLElement} list @param {Record<string, number>} timings */
export function showTimings(bar, list, timings) {
  const sum = PHASES.reduce((total, phase) => total + timings[phase], 0) || 1;
  bar.replaceChildren(
    ...PHASES.map((phase) => {
      const piece = element("span", "", `phase-${phase}`);
      piece.style.width = `${(100 * timings[phase]) / sum}%`;
      return piece;
    }),
  );
  list.replaceChildren(
    ...[...PHASES, "total"].map((phase) => {
      const line = document.createElement("div");
      const milliseconds = element("dd", `${timings[phase].toFixed(1)} ms`);
      const label = element("dt", phase === "total" ? "in the server" : phase);
      if (phase !== "total") label.prepend(element("i", "", `phase-${phase}`), " ");
      line.append(label, milliseconds);
      return line;
    }),
  );
}

/** What a language is called. @param {string} code BCP 47 */
export function nameOf(code) {
  return new Intl.DisplayNames(["en"], { type: "language" }).of(code) ?? code;
}

/** Return an element with a text. @param {string} tag @param {string} text @param {string} [className] */
export function element(tag, text, className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

/** Translates while somebody types: waits for a pause, drops what is stale, keeps the sentences that it has. */

import { placesOf, postForLines } from "./api.js";

const PAUSE_MS = 250;
const MOST_KEPT = 500;

/**
 * @typedef {object} Segment
 * @property {number | null} quality @property {import("./api.js").Warning[]} warnings
 * @typedef {object} Sentence a sentence with its translation, places in UTF-16
 * @property {string} source @property {string} text @property {string} [error] @property {string} pivot
 * @property {number | null} quality of its worst segment @property {import("./api.js").Warning[]} warnings
 * @property {import("./api.js").Link[]} links @property {boolean} [isChosen] whether a person chose an alternative
 * @typedef {{begin: number, end: number, sentence: Sentence | null}} Place of a sentence in the source; null: not there yet
 * @typedef {object} Wish what is to be translated
 * @property {string} text @property {string} source @property {string} target @property {string} format
 */

export class Translator extends EventTarget {
  /** @type {Map<string, Sentence>} by language, format and source */
  #kept = new Map();
  #timer = 0;
  #abort = new AbortController();
  /** @type {Wish} */
  wish = { text: "", source: "", target: "", format: "plain" };
  /** @type {Place[]} */
  places = [];
  language = "";

  /** Translate this after a pause, and nothing else any more. @param {Wish} wish @param {number} [pause] */
  want(wish, pause = PAUSE_MS) {
    this.wish = wish;
    this.stop();
    this.#timer = setTimeout(() => this.#translate(wish), pause);
  }

  /** Cancel what runs; the server then frees its rows. */
  stop() {
    clearTimeout(this.#timer);
    this.#abort.abort();
    this.#tell("idle");
  }

  /** Forget all translations: others may have been made with another key. */
  forget() {
    this.#kept.clear();
  }

  /** Put another translation in the place of a sentence's. @param {Sentence} sentence */
  replace(sentence) {
    this.#keep(sentence);
    for (const place of this.places) if (place.sentence?.source === sentence.source) place.sentence = sentence;
    this.#tell("change");
  }

  /** The whole translation, with what stands between the sentences; null for a sentence that is not there yet. */
  parts() {
    const parts = [];
    let end = 0;
    for (const place of this.places) {
      parts.push({ between: this.wish.text.slice(end, place.begin), place });
      end = place.end;
    }
    return { parts, rest: this.wish.text.slice(end) };
  }

  /** @param {Wish} wish */
  async #translate(wish) {
    if (!wish.text.trim() || !wish.target) {
      this.places = [];
      this.#tell("change");
      return;
    }
    const abort = (this.#abort = new AbortController());
    this.#tell("busy");
    try {
      await this.#read(wish, abort.signal);
      this.#tell("idle");
      this.#tell("done");
    } catch (error) {
      if (abort.signal.aborted) return; // a later request has its place
      this.#tell("idle");
      this.#tell("failure", error);
    }
  }

  /** @param {Wish} wish @param {AbortSignal} signal */
  async #read(wish, signal) {
    const asked = { ...wish, known: this.#knownOf(wish), known_language: this.language };
    for await (const line of postForLines("/console/translate", asked, signal)) {
      if (signal.aborted) return;
      if (line.sentences) this.#begin(wish, line);
      else if ("sentence" in line) this.#finish(line);
      else this.#tell("end", line);
    }
  }

  /** The sentences in a text whose translations are here. @param {Wish} wish */
  #knownOf(wish) {
    const sources = [...this.#kept.values()].map((sentence) => sentence.source);
    return sources.filter((source) => wish.text.includes(source) && this.#kept.has(this.#name(source, this.language, wish)));
  }

  #begin(wish, line) {
    this.language = line.language;
    const at = placesOf(wish.text);
    this.places = line.sentences.map(([begin, end]) => {
      const place = { begin: at(begin), end: at(end), sentence: null };
      place.sentence = this.#kept.get(this.#name(wish.text.slice(place.begin, place.end), line.language, wish)) ?? null;
      return place;
    });
    this.#tell("language", line);
    this.#tell("change");
  }

  #finish(line) {
    const sentence = read(line);
    if (!sentence.error) this.#keep(sentence);
    for (const place of this.places) {
      if (this.wish.text.slice(place.begin, place.end) === sentence.source) place.sentence = sentence;
    }
    this.#tell("change");
  }

  /** @param {Sentence} sentence */
  #keep(sentence) {
    if (this.#kept.size >= MOST_KEPT) this.#kept.delete(this.#kept.keys().next().value);
    this.#kept.set(this.#name(sentence.source, this.language, this.wish), sentence);
  }

  #name(source, language, wish) {
    return [language, wish.target, wish.format, source].join("\n");
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** Return the sentence in a line of the answer. @returns {Sentence} */
function read(line) {
  const source = line.sentence;
  if (line.error) return { source, text: source, error: line.error, pivot: "", quality: null, warnings: [], links: [] };
  const segments = line.segments;
  const qualities = segments.map((segment) => segment.quality).filter((quality) => quality !== null);
  return {
    source,
    text: line.text,
    pivot: line.pivot,
    quality: qualities.length ? Math.min(...qualities) : null,
    warnings: [...line.warnings, ...segments.flatMap((segment) => segment.warnings)],
    links: linksOf(segments.flatMap((segment) => segment.links), source, line.text),
  };
}

/**
 * Return links with places in UTF-16.
 * @param {import("./api.js").Link[]} links @param {string} source @param {string} text
 */
export function linksOf(links, source, text) {
  const [atSource, atText] = [placesOf(source), placesOf(text)];
  return links.map(([a, b, c, d]) => [atSource(a), atSource(b), atText(c), atText(d)]);
}

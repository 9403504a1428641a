/** Texts in words, by the rules of Unicode. */

const segmenter = new Intl.Segmenter(undefined, { granularity: "word" });

/**
 * Return all pieces of a text: words, and what stands between them.
 * @param {string} text @returns {{text: string, begin: number, isWord: boolean}[]}
 */
export function wordsOf(text) {
  return [...segmenter.segment(text)].map((piece) => ({
    text: piece.segment,
    begin: piece.index,
    isWord: Boolean(piece.isWordLike),
  }));
}

/** Return the word at a place of a text, null where there is none. @param {string} text @param {number} place */
export function wordAt(text, place) {
  const found = wordsOf(text).find((word) => word.isWord && word.begin <= place && place <= word.begin + word.text.length);
  return found ? { begin: found.begin, end: found.begin + found.text.length } : null;
}

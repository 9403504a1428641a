/** Requests to the server: the key, errors, and answers that come line by line. */

/** @typedef {{kind: string, message: string}} Warning */
/** @typedef {[number, number, number, number]} Link word of the source, word of the translation: begin and end of each */

let key = "";

/** Keep an API key for later requests, in this page's memory alone. @param {string} value */
export function setKey(value) {
  key = value.trim();
}

/** An answer that says what went wrong. */
export class RequestError extends Error {
  /** @param {string} message @param {number} status of HTTP */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/**
 * Return the response of the server; raise RequestError, or AbortError once the signal says so.
 * @param {string} path @param {{body?: BodyInit, type?: string, signal?: AbortSignal}} options with a body, it is a POST
 */
async function send(path, { body, type, signal } = {}) {
  const headers = new Headers(key ? { authorization: `Bearer ${key}` } : {});
  if (type) headers.set("content-type", type);
  const response = await fetch(path, { method: body ? "POST" : "GET", body, headers, signal, cache: "no-store" });
  if (response.ok) return response;
  const text = await response.text();
  let message = text.trim();
  try {
    message = JSON.parse(text).error;
  } catch {
    // a line of text
  }
  throw new RequestError(message || `the server answered ${response.status}`, response.status);
}

/** @param {string} path */
export async function get(path) {
  return (await send(path)).json();
}

/** @param {string} path */
export async function getText(path) {
  return (await send(path)).text();
}

/** @param {string} path @param {object} value @param {AbortSignal} [signal] */
export async function post(path, value, signal) {
  return (await send(path, { body: JSON.stringify(value), type: "application/json", signal })).json();
}

/** Return the content of a file that the server has made. @param {string} path */
export async function getBlob(path) {
  return (await send(path)).blob();
}

/**
 * Yield the lines of an answer, each as soon as it is there.
 * @param {string} path @param {object} value @param {AbortSignal} signal
 */
export async function* postForLines(path, value, signal) {
  yield* linesOf(await send(path, { body: JSON.stringify(value), type: "application/json", signal }));
}

/** As `postForLines`, with a form. @param {string} path @param {FormData} form @param {AbortSignal} signal */
export async function* postFormForLines(path, form, signal) {
  yield* linesOf(await send(path, { body: form, signal }));
}

/** @param {Response} response */
async function* linesOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value: piece, done } = await reader.read();
    const lines = (rest + (piece ?? "")).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) yield JSON.parse(line);
    if (done) return;
  }
}

/**
 * Return a function from places in code points, as the server counts, to places in UTF-16, as JavaScript does.
 * @param {string} text @returns {(place: number) => number}
 */
export function placesOf(text) {
  if (!/[\ud800-\udfff]/.test(text)) return (place) => place;
  const places = [0];
  for (const point of text) places.push(places[places.length - 1] + point.length);
  return (place) => places[place] ?? text.length;
}

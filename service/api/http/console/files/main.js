/** Connects the parts of the page. */

import { Alternatives } from "./alternatives.js";
import { post, setKey } from "./api.js";
import { Attention } from "./attention.js";
import { listSentences, listWarnings, showTimings } from "./details.js";
import { Files } from "./files.js";
import { watchServer } from "./live.js";
import { Models } from "./models.js";
import { Output } from "./output.js";
import { Source } from "./source.js";
import { linksOf, Translator } from "./translator.js";
import { wordAt } from "./words.js";

const EXAMPLE = "The animal didn't cross the street because it was too tired.";

/** @param {string} id @returns {any} */
const find = (id) => document.getElementById(id);
const translator = new Translator();
const source = new Source(find("source"), find("mirror"));
const output = new Output(find("output"));
const models = new Models(find("source-language"), find("target-language"));
const alternatives = new Alternatives(find("alternatives"));
const attention = new Attention(find("attention"));
const files = new Files(find("source").closest(".pane"), find("file"), find("download"));

/** Say what went wrong, or nothing. @param {string} text */
function notice(text) {
  find("notice").textContent = text;
  find("notice").hidden = !text;
}

function translate() {
  files.withdraw();
  const format = find("is-html").checked ? "html" : "plain";
  const wish = { text: source.area.value, source: models.source.value, target: models.target.value, format };
  if (!wish.text.trim()) models.showDetected("");
  translator.want(wish);
}

function writeSource(text, isHtml = false) {
  source.area.value = text;
  find("is-html").checked = isHtml;
  source.light([]);
  translate();
}

translator.addEventListener("busy", () => find("progress").classList.add("is-busy"));
translator.addEventListener("idle", () => find("progress").classList.remove("is-busy"));
translator.addEventListener("change", () => {
  notice("");
  output.element.lang = translator.wish.target;
  output.show(translator);
  find("details").hidden = !translator.places.length;
  listSentences(find("sentences"), translator.places, (sentence) =>
    attention.show({ text: sentence.source, translation: sentence.text, ...languages() }),
  );
});
translator.addEventListener("language", ({ detail }) => {
  if (!detail.detected) return;
  models.showDetected(detail.language);
  const { value } = models.target;
  models.offerTargets(detail.language);
  if (models.target.value !== value) translate(); // into a language that this one can be translated into
});
translator.addEventListener("end", ({ detail }) => {
  showTimings(find("timings-bar"), find("timings"), detail.timings);
  if (detail.model) find("made-by").textContent = `Made by ${detail.model} ${detail.version}`;
});
translator.addEventListener("done", () => {
  if (translator.places.length) find("status").textContent = `Translation: ${output.text}`;
});
translator.addEventListener("failure", ({ detail }) => {
  notice(detail.message);
  if (detail.status === 403) find("key-dialog").showModal();
});

function languages() {
  return { source: translator.language, target: translator.wish.target };
}

output.addEventListener("point", ({ detail: { index, from, to } }) => {
  const place = translator.places[index];
  const links = place.sentence?.links.filter(([, , c, d]) => c < to && from < d) ?? [];
  source.light(links.map(([a, b]) => [place.begin + a, place.begin + b]));
});
output.addEventListener("leave", () => source.light([]));
source.addEventListener("point", ({ detail: at }) => {
  const word = at === null ? null : wordAt(source.area.value, at);
  const index = word ? translator.places.findIndex(({ begin, end }) => begin <= word.begin && word.end <= end) : -1;
  const place = translator.places[index];
  if (!place || translator.wish.text !== source.area.value) {
    output.unlight();
    source.light([]);
    return;
  }
  output.light(index, place.sentence, word.begin - place.begin, word.end - place.begin);
  source.light([[word.begin, word.end]]);
});

output.addEventListener("choose", ({ detail: { index, from, word } }) => {
  const { sentence } = translator.places[index];
  const asked = { text: sentence.source, prefix: sentence.text.slice(0, from), current: sentence.text, ...languages() };
  alternatives.open(word, asked, (text) => choose(sentence, text));
});

/** Put an alternative in the place of a translation, and ask which words belong together. */
async function choose(sentence, text) {
  const chosen = { ...sentence, text, links: [], warnings: [], quality: null, isChosen: true };
  translator.replace(chosen);
  find("status").textContent = `Translation: ${text}`;
  try {
    const { links } = await post("/console/score", { text: sentence.source, translation: text, ...languages() });
    translator.replace({ ...chosen, links: linksOf(links, sentence.source, text) });
  } catch {
    // without links, nothing lights up
  }
}

files.addEventListener("text", ({ detail: { text, isHtml } }) => writeSource(text, isHtml));
files.addEventListener("document", async ({ detail: file }) => {
  find("status").textContent = `Translating ${file.name}`;
  find("progress").classList.add("is-busy");
  find("stop").hidden = false;
  notice("");
  listWarnings(find("report"), find("report-lines"), []);
  try {
    const { report, remarks } = await files.translate(file, models.source.value, models.target.value);
    listWarnings(find("report"), find("report-lines"), report);
    const said = [`with ${report.length} warnings`, ...remarks].join("; ");
    find("status").textContent = `${file.name} is translated and can be downloaded, ${said}`;
  } catch (error) {
    if (error.name !== "AbortError") notice(`${file.name}: ${error.message}`);
    find("status").textContent = `${file.name} is not translated`;
  }
  if (files.stopping) return; // another document
  find("progress").classList.remove("is-busy");
  find("stop").hidden = true;
  find("stop").textContent = "Stop";
});
files.addEventListener("progress", ({ detail: { done, total } }) => {
  find("stop").textContent = `Stop (${done} of ${total})`;
});
find("stop").addEventListener("click", () => files.stop());

source.area.addEventListener("input", translate);
find("is-html").addEventListener("change", translate);
find("target-language").addEventListener("change", translate);
find("source-language").addEventListener("change", () => {
  models.showDetected("");
  models.offerTargets();
  translate();
});
find("swap").addEventListener("click", () => {
  const text = output.text;
  if (models.swap(translator.language)) writeSource(text, find("is-html").checked);
});
find("clear").addEventListener("click", () => {
  writeSource("");
  attention.clear();
  source.area.focus();
});
find("example").addEventListener("click", () => writeSource(EXAMPLE));
find("choose-file").addEventListener("click", () => find("file").click());
find("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(output.text);
  find("copy").textContent = "Copied";
  find("status").textContent = "Copied";
  setTimeout(() => (find("copy").textContent = "Copy"), 1500);
});
find("open-card").addEventListener("click", () => {
  models.showCards(find("model-list"), find("card"));
  find("card-dialog").showModal();
});
find("open-key").addEventListener("click", () => find("key-dialog").showModal());
find("key-dialog").addEventListener("close", () => {
  setKey(find("key").value);
  translator.forget();
  start();
});

/** Ask what the server can do, and translate what is there. */
async function start() {
  try {
    await models.load();
    notice("");
    if (source.area.value) translate();
  } catch (error) {
    notice(error.message);
    if (error.status === 403 && !find("key-dialog").open && !find("key").value) find("key-dialog").showModal();
  }
}

watchServer(find);
start();

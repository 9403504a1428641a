/** Documents that are opened or dropped: texts and HTML go into the page, other formats are translated by the server. */

import { getBlob, postFormForLines } from "./api.js";

const AS_TEXT = /\.(txt|text)$/i;
const AS_HTML = /\.(html?|xhtml)$/i;

export class Files extends EventTarget {
  /** @param {HTMLElement} pane where documents are dropped @param {HTMLInputElement} input @param {HTMLAnchorElement} link */
  constructor(pane, input, link) {
    super();
    this.link = link;
    /** @type {AbortController | null} */
    this.stopping = null;
    input.addEventListener("change", () => {
      if (input.files?.length) this.#open(input.files[0]);
      input.value = "";
    });
    for (const type of ["dragover", "dragleave", "drop"]) {
      pane.addEventListener(type, (event) => {
        const transfer = /** @type {DragEvent} */ (event).dataTransfer;
        if (!transfer?.types.includes("Files")) return;
        event.preventDefault();
        pane.classList.toggle("is-target", type === "dragover");
        if (type === "drop" && transfer.files.length) this.#open(transfer.files[0]);
      });
    }
  }

  /** @param {File} file */
  async #open(file) {
    if (AS_TEXT.test(file.name) || AS_HTML.test(file.name)) {
      this.#tell("text", { text: await file.text(), isHtml: AS_HTML.test(file.name) });
    } else {
      this.#tell("document", file);
    }
  }

  /**
   * Have the server translate a document, offer what it made, and return warnings and remarks; tell how far it is.
   * @param {File} file @param {string} source @param {string} target
   */
  async translate(file, source, target) {
    this.stop();
    const stop = (this.stopping = new AbortController());
    const form = new FormData();
    form.set("file", file);
    form.set("source", source);
    form.set("target", target);
    try {
      for await (const line of postFormForLines("/console/document", form, stop.signal)) {
        if ("file" in line) {
          this.offer(await getBlob(`/download_file/${line.file}`), named(file.name, target));
          return line;
        }
        this.#tell("progress", line);
      }
      throw new Error("the server ended its answer before the document was translated");
    } finally {
      if (this.stopping === stop) this.stopping = null;
    }
  }

  /** Have the server work no more on the document that it translates. */
  stop() {
    this.stopping?.abort();
  }

  /** Offer something to be kept as a file. @param {Blob} content @param {string} name */
  offer(content, name) {
    URL.revokeObjectURL(this.link.href);
    this.link.href = URL.createObjectURL(content);
    this.link.download = name;
    this.link.textContent = `Download ${name}`;
    this.link.hidden = false;
  }

  /** Offer nothing. */
  withdraw() {
    this.link.hidden = true;
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** letter.po, de -> letter.de.po */
function named(name, target) {
  const dot = name.lastIndexOf(".");
  return dot < 0 ? `${name}.${target}` : `${name.slice(0, dot)}.${target}${name.slice(dot)}`;
}

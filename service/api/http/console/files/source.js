/** The text that somebody writes: a text area, and behind it a mirror of its text in which words light up. */

export class Source extends EventTarget {
  /** @param {HTMLTextAreaElement} area @param {HTMLElement} mirror */
  constructor(area, mirror) {
    super();
    this.area = area;
    this.mirror = mirror;
    area.addEventListener("input", () => this.light([]));
    area.addEventListener("pointermove", (event) => this.#hover(event));
    area.addEventListener("pointerleave", () => this.#tell(null));
    area.addEventListener("blur", () => this.#tell(null));
    for (const type of ["keyup", "click"]) area.addEventListener(type, () => this.#tell(area.selectionStart));
  }

  /** Light up these places. @param {[number, number][]} spans */
  light(spans) {
    const text = this.area.value;
    const nodes = [];
    let end = 0;
    for (const [begin, stop] of [...spans].sort(([a], [b]) => a - b)) {
      if (begin < end) continue;
      const mark = document.createElement("mark");
      mark.textContent = text.slice(begin, stop);
      nodes.push(text.slice(end, begin), mark);
      end = stop;
    }
    this.mirror.replaceChildren(...nodes, `${text.slice(end)}\n`);
  }

  /** @param {PointerEvent} event */
  #hover(event) {
    const found = document.caretPositionFromPoint?.(event.clientX, event.clientY);
    if (found?.offsetNode === this.area) this.#tell(found.offset);
  }

  /** @param {number | null} place */
  #tell(place) {
    this.dispatchEvent(new CustomEvent("point", { detail: place }));
  }
}

"""`python -m trials.fuzz.documents`: damaged packages, read, translated and written: none crashes or hangs the reader.

    python -m trials.fuzz.documents --packages 2000 --seed 1 [FILE ...]

Held of each: it is refused with one line, or written again as a package whose parts are all there and, where they were
read, well-formed XML with the same texts; it takes at most 10 s, and the process at most 512 MiB.  Packages of our own
are damaged, and files that are named: bytes of the archive, or what is in a part, such as tags lost, doubled and moved.
Files that are whole and have tens of thousands of something take no longer.
"""

import argparse
import faulthandler
import io
import json
import random
import re
import resource
import signal
import sys
import time
import zipfile
from collections import Counter
from pathlib import Path

from service.documents.formats import format_of, read_file
from service.documents.xml import require_well_formed
from tests.fakes.packages import CUT_SENTENCE, open_text, packed, sheet_part, word
from tests.fakes.shouting import shouted

SECONDS, MEBIBYTES = 10, 512
_LONGEST = 100_000  # characters of a part that is damaged further
_BOX = "<w:p><w:r><w:t>Beside </w:t><w:pict><w:p><w:r><w:t>in the box</w:t></w:r></w:p></w:pict></w:r></w:p>"
_SHEET = sheet_part("sst", "<si><t>A rose</t></si><si><r><rPr><b/></rPr><t>Rich</t></r><r><t> text</t></r></si>")
_PAGE = "<html lang='en'><body><p>The <b>cat</b></p><pre>ls</pre></body></html>"
_SPACE = "<text:p>A <text:span>cat</text:span><text:s text:c='3'/><text:note><text:p>One</text:p></text:note></text:p>"
SEEDS = {
    "a.docx": word(CUT_SENTENCE + _BOX),
    "a.xlsx": packed({"[Content_Types].xml": "<T/>", "xl/sharedStrings.xml": _SHEET}),
    "a.odt": open_text(_SPACE),
    "a.epub": packed({"META-INF/container.xml": "<c/>", "a/one.xhtml": _PAGE}),
}
_TAGS = (
    "<w:p>",
    "</w:p>",
    "<w:r/>",
    "<!--",
    "]]>",
    "<![CDATA[",
    "&#0;",
    "&lt;",
    "<a:t>x</a:t>",
    '<x a="',
    "\x00",
    "\ud7ff",
)


def large() -> dict[str, bytes]:
    """Files with so much of something in one place that whatever takes time with its square would be seen."""
    text = "<w:r><w:t>word </w:t></w:r>"
    page_break = '<w:r><w:br w:type="page"/></w:r>'
    box = f"<w:r><w:pict><w:p>{text}</w:p></w:pict></w:r>"
    begin, end = (f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "end"))
    blocks = [f"Paragraph number {number}." for number in range(2_000)]
    return {
        "runs.docx": word(f"<w:p>{text * 35_000}</w:p>"),
        "breaks.docx": word(f"<w:p>{page_break * 60_000}{text}</w:p>"),
        "boxes.docx": word(f"<w:p>{text}{(box + text) * 12_000}</w:p>"),
        "fields.docx": word(f"<w:p>{begin * 250}{text * 30_000}{end * 250}</w:p>"),
        "spans.odt": open_text(f"<text:p>{'<text:span>word </text:span>' * 60_000}</text:p>"),
        "paragraphs.txt": b"A short paragraph.\n\n" * 100_000,
        "messages.json": json.dumps({f"key{number}": "A short message." for number in range(50_000)}).encode(),
        "cells.csv": b"A cell,Another one\n" * 50_000,
        "blocks.md": "\n\n".join(blocks).encode(),
        "one-block-is-left-out.md": "\n\n".join([*blocks, "[Toc]", *blocks]).encode(),
    }


def damaged(content: bytes, rng: random.Random) -> bytes:
    """A package with something wrong."""
    return rng.choice((_bytes_changed, _part_changed, _part_changed, _part_changed))(content, rng)


def _bytes_changed(content: bytes, rng: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        at = rng.randrange(len(data))
        data[at] = rng.randrange(256)
    cut = rng.random()
    if cut < 0.1:
        return bytes(data[: rng.randrange(len(data))])
    if cut < 0.2:
        begin = rng.randrange(len(data))
        return bytes(data[:begin] + data[rng.randrange(len(data)) :])
    return bytes(data)


def _part_changed(content: bytes, rng: random.Random) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(parts))
    text = parts[name].decode("utf-8", "replace")
    for _ in range(rng.choice((1, 1, 2, 5))):
        pieces = [piece for piece in text.replace("<", "\n<").replace(">", ">\n").split("\n") if piece]
        if not pieces or len(text) > _LONGEST:
            break
        at, other = rng.randrange(len(pieces)), rng.randrange(len(pieces))
        match rng.randrange(5):
            case 0:
                del pieces[at]
            case 1:
                pieces.insert(other, pieces[at])
            case 2:
                pieces[at], pieces[other] = pieces[other], pieces[at]
            case 3:
                pieces.insert(at, rng.choice(_TAGS))
            case 4:
                pieces[at] = pieces[at][:_LONGEST] * rng.choice((2, 50))
        text = "".join(pieces)
    return packed({**parts, name: text.encode("utf-8", "replace")})


def outcome(name: str, content: bytes) -> str:
    """What became of a package; raises AssertionError, or whatever a mistake of ours raises."""
    document_format = format_of(Path(name))
    try:
        draft = read_file(content, document_format, "de")
    except ValueError as error:
        return "refused" if len(str(error).splitlines()) == 1 else f"refused with several lines: {error}"
    texts = [unit.text for unit in draft.units]
    written = shouted(draft).content
    with zipfile.ZipFile(io.BytesIO(written)) as archive:  # parts that nobody reads may be as damaged as they were
        for part, reader in draft.parts.items():
            if reader.units and not part.endswith("html"):
                require_well_formed(archive.read(part).decode(), part, document_type="empty")
    again = read_file(written, document_format, "de")
    assert [_words(unit.text) for unit in again.units] == [_words(text) for text in texts]
    return "written" if texts else "without texts"


def _words(text: str) -> list[str]:
    """The words of a unit; text outside of runs is in one afterwards, and joins others of its format."""
    return re.sub(r"</?[gx]\b[^<>]*>", "", text).upper().split()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("files", nargs="*", type=Path, help="more packages to damage; other files are passed over")
    options = parser.parse_args()
    faulthandler.register(signal.SIGPROF, chain=True)
    seeds = {**SEEDS, **{str(file): file.read_bytes() for file in options.files if zipfile.is_zipfile(file)}}
    outcomes, slowest = Counter[str](), (0.0, "")
    for name, content in large().items():
        began = time.process_time()
        shouted(read_file(content, format_of(Path(name)), "de"))
        seconds = time.process_time() - began
        print(f"{name}: {seconds:.1f} s", flush=True)
        assert seconds <= SECONDS, name
    for number in range(options.packages):
        rng = random.Random(options.seed * 1_000_000 + number)
        name = rng.choice(list(seeds))
        content = damaged(seeds[name], rng)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of the CPU; a hang ends with where it is
        began = time.process_time()
        try:
            outcomes[outcome(name, content)] += 1
        except Exception:
            Path("build").mkdir(exist_ok=True)
            Path(f"build/damaged{Path(name).suffix}").write_bytes(content)
            print(f"number {number} of seed {options.seed}, {name}: kept in build/", file=sys.stderr)
            raise
        signal.setitimer(signal.ITIMER_PROF, 0)
        slowest = max(slowest, (time.process_time() - began, f"{name} {number}"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = {"outcomes": outcomes, "slowest_s": round(slowest[0], 3), "slowest": slowest[1], "peak_mib": round(peak)}
    is_good = peak <= MEBIBYTES and outcomes.keys() <= {"refused", "written", "without texts"}
    print(json.dumps({**figures, "ok": is_good}))
    return int(not is_good)


if __name__ == "__main__":
    sys.exit(main())

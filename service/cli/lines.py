"""The lines that `dragoman translate` reads and writes.

Knows files and formats; nothing of servers and engines.  The number of lines out equals the number of lines in.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import BinaryIO

from model.files import on_one_line, text_of_line
from service.errors import DragomanError, InvalidInput
from service.records import TranslateAll, Translation


@dataclass(frozen=True, slots=True)
class Line:
    """One source text, or the reason why there is none."""

    number: int  # from 1
    text: str  # empty if the bytes were no text
    error: DragomanError | None = None


def from_texts(texts: Iterable[str]) -> Iterator[Line]:
    """Number the texts of the command line; bytes that were no UTF-8 arrive there as lone surrogates."""
    for number, text in enumerate(texts, start=1):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            yield Line(number, "", _not_text(error.start))
        else:
            yield Line(number, text)


def from_bytes(stream: BinaryIO, name: str) -> Iterator[Line]:
    """Yield the lines of a UTF-8 stream without their ends; a line is read when it is asked for.

    Raises:
        OSError: it cannot be read; `filename` is `name`.
    """
    try:
        for number, raw in enumerate(stream, start=1):
            try:
                yield Line(number, text_of_line(raw, is_first=number == 1))
            except UnicodeDecodeError as error:
                yield Line(number, "", _not_text(error.start))
    except OSError as error:  # of a directory, say
        raise OSError(error.errno, error.strerror, name) from error


def plain(line: Line, translation: Translation) -> str:
    """Return the best translation, on one line unless the text has line feeds itself; empty if the text failed."""
    if translation.error:
        return ""
    return translation.text if "\n" in line.text else on_one_line(translation.text)


def scored(line: Line, translation: Translation) -> str:
    """Return all hypotheses, best first, one a line: line number, score, text, with tabs between them."""
    if translation.error:
        return f"{line.number}\t\t"
    rows = [f"{line.number}\t{item.score:.4f}\t{on_one_line(item.text)}" for item in translation.hypotheses]
    return "\n".join(rows) or f"{line.number}\t\t"


def as_json_line(line: Line, translation: Translation) -> str:
    """Return one JSON object: source, hypotheses (none with an error) with all their facts, tokens, warnings, error."""
    error = translation.error
    return json.dumps(
        {
            "line": line.number,
            "source": line.text,
            "hypotheses": [] if error else [asdict(item) for item in translation.hypotheses],
            "source_tokens": translation.source_tokens,
            "warnings": [{"kind": one.kind.value, "message": one.message} for one in translation.warnings],
            "error": None if error is None else {"kind": type(error).__name__, "message": str(error)},
        },
        ensure_ascii=False,
    )


def translated_lines(lines: Iterable[Line], translate: TranslateAll) -> Iterator[tuple[Line, Translation]]:
    """Yield each line with its translation; one that is no text is sent as a blank one, which costs nothing."""
    waiting = deque[Line]()  # given to the translator, not yet translated; in order

    def texts() -> Iterator[str]:
        for line in lines:
            waiting.append(line)
            yield line.text

    for translation in translate(texts()):
        line = waiting.popleft()
        yield line, translation if line.error is None else Translation(error=line.error)


def _not_text(position: int) -> InvalidInput:
    return InvalidInput(f"the text is not valid UTF-8 at byte {position}", field="text")

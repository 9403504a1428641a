"""Translations that tests can foresee: capital letters outside of tags, as a server with a model would place them."""

import re
from collections.abc import Sequence
from typing import Protocol, TypeVar

from service.documents.draft import Unit, Written
from service.engine.wire import FinishReason
from service.records import TextFormat, TranslatedText, Translation

_KEPT = re.compile(r"(<ph\b[^<>]*>[^<>]*</ph>|<[^<>]*>|&#?\w+;|``.*?``|`[^`]*`)")


def translation_of(text: str) -> Translation:
    """The record of a translation."""
    hypothesis = TranslatedText(text=text, score=0.0, finish_reason=FinishReason.END_OF_SENTENCE, target_tokens=1)
    return Translation(hypotheses=(hypothesis,))


def shout(text: str, text_format: TextFormat) -> str:
    """The text in capital letters, but for tags and character references where the format has them."""
    if text_format is TextFormat.PLAIN:
        return text.upper()
    return "".join(part if _KEPT.fullmatch(part) else part.upper() for part in _KEPT.split(text))


_Content = TypeVar("_Content", str, bytes)


class _Read(Protocol[_Content]):
    """A file, or a part of one."""

    @property
    def units(self) -> tuple[Unit, ...]: ...

    def write(self, translations: Sequence[Translation]) -> Written[_Content]: ...


def shouted(read: _Read[_Content]) -> Written[_Content]:
    """A file in capital letters."""
    return read.write([translation_of(shout(unit.text, unit.format)) for unit in read.units])


def echoed(read: _Read[_Content]) -> Written[_Content]:
    """A file with its own texts as their translations."""
    return read.write([translation_of(unit.text) for unit in read.units])


def answered(read: _Read[_Content], *texts: str) -> _Content:
    """A file with these translations."""
    return read.write([translation_of(text) for text in texts]).content

"""Translations that tests can foresee: capital letters outside of tags, as a server with a model would place them."""

import re

from service.documents.draft import Draft, FileDraft, Written
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


def shouted(draft: Draft) -> Written:
    """A file in capital letters."""
    return draft.write([translation_of(shout(unit.text, unit.format)) for unit in draft.units])


def shouted_file(draft: FileDraft) -> bytes:
    """A whole file in capital letters."""
    return draft.write([translation_of(shout(unit.text, unit.format)) for unit in draft.units]).content


def echoed_file(draft: FileDraft) -> bytes:
    """A whole file with its own texts as their translations."""
    return draft.write([translation_of(unit.text) for unit in draft.units]).content


def echoed(draft: Draft) -> Written:
    """A file with its own texts as their translations."""
    return draft.write([translation_of(unit.text) for unit in draft.units])


def answered(draft: Draft, *texts: str) -> str:
    """A file with these translations."""
    return draft.write([translation_of(text) for text in texts]).text

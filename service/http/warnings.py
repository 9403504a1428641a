"""What went wrong with translations, for protocols whose messages have no place for it: a field more, and a header.

Clients of LibreTranslate and of DeepL pass over fields that they do not know.
"""

from collections.abc import Iterable

from pydantic import BaseModel

from service.call import Call
from service.records import Translation, WarningKind


class KindOfWarning(BaseModel):
    """Something that went wrong with a text, once or more often."""

    kind: WarningKind
    count: int
    message: str  # of the first


def warnings_of(translation: Translation) -> list[KindOfWarning] | None:
    """Return what went wrong with a text, by kind; None: nothing that the server noticed."""
    found: dict[WarningKind, KindOfWarning] = {}
    for warning in translation.warnings:
        if warning.kind in found:
            found[warning.kind].count += 1
        else:
            found[warning.kind] = KindOfWarning(kind=warning.kind, count=1, message=warning.message)
    return list(found.values()) or None


def warn_of(translations: Iterable[Translation], call: Call) -> None:
    """Have the answer of a call say in its header what went wrong."""
    call.warn(warning.kind for translation in translations for warning in translation.warnings)

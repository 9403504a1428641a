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
    return by_kind((warning.kind, warning.message) for warning in translation.warnings) or None


def by_kind(warnings: Iterable[tuple[WarningKind, str]]) -> list[KindOfWarning]:
    """Return kinds and messages as one record for each kind."""
    found: dict[WarningKind, KindOfWarning] = {}
    for kind, message in warnings:
        if kind in found:
            found[kind].count += 1
        else:
            found[kind] = KindOfWarning(kind=kind, count=1, message=message)
    return list(found.values())


def warn_of(translations: Iterable[Translation], call: Call) -> None:
    """Have the answer of a call say in its header what went wrong."""
    call.warn(warning.kind for translation in translations for warning in translation.warnings)

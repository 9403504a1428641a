"""A package as one file to translate: its parts of language, the language that they say they are in, and the way back.

Knows no format: what is in a part is known by the reader of the part.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from model.language_codes import subtags_of
from service.documents.draft import Draft, FileDraft
from service.documents.package import Package
from service.documents.paragraphs import Said

_ASIAN, _BIDI = {"eastAsia", "language-asian", "country-asian"}, {"bidi", "language-complex", "country-complex"}
_SCRIPTS = {"Hans": _ASIAN, "Hant": _ASIAN, "Jpan": _ASIAN, "Kore": _ASIAN, "Arab": _BIDI, "Hebr": _BIDI}


class Part(Protocol):
    """A part that was read."""

    text: str
    languages: list[Said]

    def draft(self) -> Draft:
        """Return the draft of the part."""


def draft_of_parts(
    package: Package, parts: Mapping[str, Part], target_language: str, remarks: Sequence[str] = ()
) -> FileDraft:
    """Return the draft of a package.

    Args:
        parts: those with language, in the order in which they are translated.
        target_language: BCP 47, which the parts say afterwards; empty: they say what they said.
        remarks: what a user should know of what stays as it is.
    """
    if target_language:
        _say_language([said for part in parts.values() for said in part.languages], target_language)
    return FileDraft(
        {name: part.draft() for name, part in parts.items()},
        lambda texts: package.with_parts({name: text for name, text in texts.items() if text != parts[name].text}),
        tuple(remarks),
    )


def _say_language(said: Iterable[Said], target: str) -> None:
    """Have what says the language that most of a file is in say the target's."""
    subtags = subtags_of(target)
    if subtags is None:
        return
    likely = subtags.likely
    region = subtags.region or likely.region
    apart = _SCRIPTS.get(likely.script, set())  # attributes for scripts that have their own
    counts = Counter(_language(one.language) for one in said if one.language and one.name not in _ASIAN | _BIDI)
    main = counts.most_common(1)[0][0] if counts else ""
    for one in said:
        if one.name in _ASIAN | _BIDI:
            is_ours = one.name in apart
        else:
            is_ours = _language(one.language) == main and (not apart or one.name in {"", "lang"})
        if is_ours and one.name.startswith("country"):
            one.place.fixed = region
        elif is_ours and one.name.startswith("language"):
            one.place.fixed = subtags.language
        elif is_ours:
            one.place.fixed = f"{subtags.language}-{region}" if region else subtags.language


def _language(tag: str) -> str:
    return tag.replace("_", "-").partition("-")[0].lower()

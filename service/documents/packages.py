"""Files that are packages: opened, each part of language read by who knows it, and written as packages again."""

from collections import Counter
from collections.abc import Iterable
from types import ModuleType

from model.language_codes import subtags_of
from service.documents import epub, ooxml, opendocument
from service.documents.draft import FileDraft
from service.documents.package import Package
from service.documents.paragraphs import PartReader, Said

READERS: dict[str, ModuleType] = {
    **dict.fromkeys(("docx", "pptx", "xlsx"), ooxml),
    **dict.fromkeys(("odt", "odp", "ods"), opendocument),
    "epub": epub,
}
_ASIAN, _BIDI = {"eastAsia", "language-asian", "country-asian"}, {"bidi", "language-complex", "country-complex"}
_SCRIPTS = {"Hans": _ASIAN, "Hant": _ASIAN, "Jpan": _ASIAN, "Kore": _ASIAN, "Arab": _BIDI, "Hebr": _BIDI}


def read(content: bytes, document_format: str, target_language: str) -> FileDraft:
    """Return the draft of a package; raises ValueError, in one line, if it is none or may be meant to harm."""
    kind = READERS[document_format]
    package = Package.open(content)
    readers: dict[str, PartReader] = kind.readers(package)
    if target_language:
        _say_language([said for reader in readers.values() for said in reader.languages], target_language)
    return FileDraft(
        {name: reader.draft() for name, reader in readers.items()},
        lambda texts: package.with_parts({name: text for name, text in texts.items() if text != readers[name].text}),
        tuple(kind.remarks(package)),
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

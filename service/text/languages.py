"""Which offered language a caller means: BCP 47 tags, compared as people mean them.

Pure.  Deprecated and three-letter codes ("iw", "eng_Latn") and likely scripts are those of Unicode's CLDR, which
`langcodes` brings.  Of that library only data and parser are used: its own records stay in memory for ever, and callers
choose the tags.
"""

from enum import IntEnum
from typing import NamedTuple

from langcodes.data_dicts import LANGUAGE_REPLACEMENTS, LIKELY_SUBTAGS, NORMALIZED_MACROLANGUAGES
from langcodes.tag_parser import LanguageTagError, parse_tag

_SAME_LANGUAGE = NORMALIZED_MACROLANGUAGES | {"nb": "no"}  # what is called Norwegian is Bokmål
_MAX_TAG = 64  # characters; the longest tag that RFC 5646 (4.4.1) foresees has 35


class Closeness(IntEnum):
    """How well an offered language serves for the one that is asked for; lower is better."""

    EXACT = 0  # the same tag
    GENERAL = 1  # the same or less specific: "en" for "en-US", as RFC 4647 looks up
    LIKELY = 2  # the same once what is likely is filled in: "zh-Hant" for "zh-TW", "en-US" for "en"
    REGION = 3  # that of another region: "en-GB" for "en" or "en-US"
    SCRIPT = 4  # in another script, where neither script nor region is asked for: "zh-Hant" for "zh"


class Subtags(NamedTuple):
    """A tag in today's codes, without variants and extensions; empty is what it does not say."""

    language: str
    script: str = ""
    region: str = ""

    @property
    def likely(self) -> "Subtags":
        """The tag with the most likely script and region."""
        for key in (self, Subtags(self.language, "", self.region), Subtags(self.language, self.script), self[:1]):
            if found := LIKELY_SUBTAGS.get("-".join(filter(None, key))):
                _, script, region = found.split("-")
                return Subtags(self.language, self.script or script, self.region or region)
        return self


def subtags_of(tag: str) -> Subtags | None:
    """Return what a tag says in today's codes; None if it is no BCP 47 tag."""
    if len(tag) > _MAX_TAG:
        return None
    tag = tag.replace("_", "-")
    try:
        parts = dict(parse_tag(LANGUAGE_REPLACEMENTS.get(tag.lower(), tag)))  # type: ignore[no-untyped-call]
    except LanguageTagError:
        return None
    if "language" not in parts:
        return None
    language, _, script = LANGUAGE_REPLACEMENTS.get(parts["language"], parts["language"]).partition("-")
    language = _SAME_LANGUAGE.get(language, language)
    return Subtags(language, parts.get("script", script), parts.get("territory", ""))


def closeness(asked: str, offered: str) -> Closeness | None:
    """Return how well a language on offer serves for the one that is asked for; None: it does not.

    Case does not count.  The script is never another one than the tag names or its region writes: "zh-TW" does not find
    "zh-Hans".  What is no BCP 47 tag finds only itself.
    """
    if asked.lower() == offered.lower():
        return Closeness.EXACT
    wanted, given = subtags_of(asked), subtags_of(offered)
    if wanted is None or given is None or wanted.language != given.language:
        return None
    likely_wanted, likely_given = wanted.likely, given.likely
    if likely_wanted.script != likely_given.script:
        return None if wanted.script or wanted.region else Closeness.SCRIPT
    if given.script in ("", wanted.script) and given.region in ("", wanted.region):
        return Closeness.GENERAL
    return Closeness.LIKELY if likely_wanted == likely_given else Closeness.REGION

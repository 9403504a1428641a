"""Which script a language is written in, which letters of a text belong to another one, and which language a tag means.

Pure; knows only ranges of code points (Unicode's Scripts.txt, coarsely) and the languages of the table.  A language
that is not in it has no script here, and nothing is said of it.  Tags are BCP 47, compared as people mean them.
"""

import re
from enum import IntEnum
from functools import cache

from model.language_codes import subtags_of

# Letters of a script; ranges may include marks, signs and unassigned code points between them.
_RANGES = {
    "Latn": "A-Za-z\u00aa\u00b5\u00ba\u00c0-\u02af\u1d00-\u1dbf\u1e00-\u1eff\u2c60-\u2c7f\ua720-\ua7ff\ufb00-\ufb06"
    "\uff21-\uff5a",
    "Grek": "\u0370-\u03ff\u1f00-\u1fff",
    "Cyrl": "\u0400-\u052f\u1c80-\u1c8f\u2de0-\u2dff\ua640-\ua69f",
    "Armn": "\u0531-\u058f\ufb13-\ufb17",
    "Hebr": "\u0590-\u05ff\ufb1d-\ufb4f",
    "Arab": "\u0620-\u065f\u066e-\u06d5\u06e5-\u06ef\u06fa-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufeff",
    "Thaa": "\u0780-\u07bf",
    "Ethi": "\u1200-\u139f\u2d80-\u2ddf",
    "Deva": "\u0900-\u0963\u0971-\u097f\ua8e0-\ua8ff",
    "Beng": "\u0980-\u09ff",
    "Guru": "\u0a00-\u0a7f",
    "Gujr": "\u0a80-\u0aff",
    "Orya": "\u0b00-\u0b7f",
    "Taml": "\u0b80-\u0bff",
    "Telu": "\u0c00-\u0c7f",
    "Knda": "\u0c80-\u0cff",
    "Mlym": "\u0d00-\u0d7f",
    "Sinh": "\u0d80-\u0dff",
    "Thai": "\u0e01-\u0e3a\u0e40-\u0e4e",
    "Laoo": "\u0e80-\u0eff",
    "Tibt": "\u0f00-\u0fff",
    "Mymr": "\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f",
    "Geor": "\u10a0-\u10ff\u1c90-\u1cbf\u2d00-\u2d2f",
    "Khmr": "\u1780-\u17ff",
    "Hang": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af",
    "Kana": "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9d",
    "Hani": "\u2e80-\u2fdf\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd",
}
# What a script subtag of BCP 47 stands for, where that is not one of the ranges.
_SUBTAGS = {
    "Hans": ("Hani",),
    "Hant": ("Hani",),
    "Jpan": ("Hani", "Kana"),
    "Kore": ("Hang", "Hani"),
    "Hang": ("Hang", "Hani"),
}
_LANGUAGES = {
    "Latn": "af az bs ca cs cy da de en eo es et eu fi fil fo fr fy ga gd gl ha hr ht hu id ig is it jv la lb lt lv mg "
    "mi ms mt nb nl nn no oc pl pt ro rw sk sl sn so sq st su sv sw tl tn tr uz vi wo xh yo zu",
    "Cyrl": "be bg kk ky mk mn ru tg uk",
    "Grek": "el",
    "Armn": "hy",
    "Hebr": "he iw yi",
    "Arab": "ar ckb fa ps sd ug ur",
    "Thaa": "dv",
    "Ethi": "am ti",
    "Deva": "hi mr ne sa",
    "Beng": "as bn",
    "Guru": "pa",
    "Gujr": "gu",
    "Orya": "or",
    "Taml": "ta",
    "Telu": "te",
    "Knda": "kn",
    "Mlym": "ml",
    "Sinh": "si",
    "Thai": "th",
    "Laoo": "lo",
    "Tibt": "bo dz",
    "Mymr": "my",
    "Geor": "ka",
    "Khmr": "km",
    "Kore": "ko",
    "Jpan": "ja",
    "Hans": "yue zh",
}
_SCRIPT_OF = {language: script for script, languages in _LANGUAGES.items() for language in languages.split()}
_ANY_LETTER = re.compile(r"[^\W\d_]")


@cache
def scripts_of(language: str) -> tuple[str, ...]:
    """Return the scripts of a BCP 47 (or "eng_Latn") tag, from its script subtag or the table; empty: not known."""
    primary, *subtags = language.replace("_", "-").split("-")
    named = next((tag.title() for tag in subtags if len(tag) == 4 and tag.isalpha()), None)
    script = named or _SCRIPT_OF.get(primary.lower(), "")
    return _SUBTAGS.get(script, (script,) if script in _RANGES else ())


@cache
def _foreign(scripts: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of letters that follow each other and are of none of the scripts."""
    return re.compile(rf"[^\W\d_{''.join(_RANGES[script] for script in scripts)}]+")


def foreign_runs(text: str, language: str) -> list[str]:
    """Return the letters of the text that are of no script of the language, those beside each other together.

    A language whose scripts are not known has none.
    """
    scripts = scripts_of(language)
    return _foreign(scripts).findall(text) if scripts else []


def letters(text: str) -> list[str]:
    """Return the letters of the text, of whatever script."""
    return _ANY_LETTER.findall(text)


class Closeness(IntEnum):
    """How well an offered language serves for the one that is asked for; lower is better."""

    EXACT = 0  # the same tag
    GENERAL = 1  # the same or less specific: "en" for "en-US", as RFC 4647 looks up
    LIKELY = 2  # the same once what is likely is filled in: "zh-Hant" for "zh-TW", "en-US" for "en"
    REGION = 3  # that of another region: "en-GB" for "en" or "en-US"
    SCRIPT = 4  # in another script, where neither script nor region is asked for: "zh-Hant" for "zh"


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

"""Codes of languages: BCP 47, FLORES-200 and ISO 639-3; and what the languages are called.

Pure.  Deprecated and three-letter codes ("iw", "eng_Latn") and likely scripts are those of Unicode's CLDR, which
`langcodes` brings.  Of that library only data and parser are used: its own records stay in memory for ever, and callers
choose the tags.
"""

import re
from typing import NamedTuple

from langcodes.data_dicts import LANGUAGE_ALPHA3, LANGUAGE_REPLACEMENTS, LIKELY_SUBTAGS, NORMALIZED_MACROLANGUAGES
from langcodes.tag_parser import LanguageTagError, parse_tag

_SAME_LANGUAGE = NORMALIZED_MACROLANGUAGES | {"nb": "no"}  # what is called Norwegian is Bokmål
_MAX_TAG = 64  # characters; the longest tag that RFC 5646 (4.4.1) foresees has 35
# FLORES-200 names the individual language (ISO 639-3) where BCP 47 names the one that it is the usual form of.
_INDIVIDUAL = {
    "ar": "arb", "ay": "ayr", "az": "azj", "din": "dik", "fa": "pes", "ff": "fuv", "fil": "tgl", "kr": "knc",
    "ku": "kmr", "lv": "lvs", "mg": "plt", "mn": "khk", "ms": "zsm", "ne": "npi", "no": "nob", "om": "gaz",
    "or": "ory", "ps": "pbt", "qu": "quy", "sq": "als", "sw": "swh", "uz": "uzn", "yi": "ydd",
}  # fmt: skip
_OWN_CODES = {"twi": "tw", "twi_Latn": "tw", "ns": "nso"}  # not as CLDR: Twi is Akan there; M2M100's Northern Sotho


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
    language, _, more = LANGUAGE_REPLACEMENTS.get(parts["language"], parts["language"]).partition("-")
    script, region = (more, "") if len(more) == 4 else ("", more)  # "sr-Latn" for "sh", "fa-AF" for "prs"
    language = _SAME_LANGUAGE.get(language, language)
    return Subtags(language, parts.get("script", script), parts.get("territory", region))


def bcp47_of(code: str) -> str:
    """Return the shortest BCP 47 tag of a code such as fra, fra_Latn or pt_BR; what is none is returned as it is."""
    if code in _OWN_CODES:
        return _OWN_CODES[code]
    if (found := subtags_of(code)) is None:
        return code
    script = "Kore" if found.script == "Hang" else found.script
    if found._replace(script="").likely.script == script:
        script = ""
    return "-".join(filter(None, (found.language, script, found.region)))


def flores_of(tag: str) -> str:
    """Return what FLORES-200 calls the language of a tag, such as fra_Latn, or would; empty for what is no tag."""
    found = subtags_of(tag)
    if found is None:
        return ""
    script = found.likely.script or "Latn"
    language = _INDIVIDUAL.get(found.language) or LANGUAGE_ALPHA3.get(found.language, found.language)
    return f"{language}_{'Hang' if script == 'Kore' else script}"


# English names after Unicode's CLDR, of languages that models are published for; another one has its tag as its name.
_NAMES = dict(
    re.findall(
        r"(\w+) ([^;]+);",
        "af Afrikaans;am Amharic;ar Arabic;az Azerbaijani;be Belarusian;bg Bulgarian;bn Bangla;bs Bosnian;ca Catalan;"
        "cs Czech;cy Welsh;da Danish;de German;el Greek;en English;eo Esperanto;es Spanish;et Estonian;eu Basque;"
        "fa Persian;fi Finnish;fr French;ga Irish;gl Galician;gu Gujarati;ha Hausa;he Hebrew;hi Hindi;hr Croatian;"
        "hu Hungarian;hy Armenian;id Indonesian;ig Igbo;is Icelandic;it Italian;ja Japanese;ka Georgian;kk Kazakh;"
        "km Khmer;kn Kannada;ko Korean;ky Kyrgyz;lb Luxembourgish;lo Lao;lt Lithuanian;lv Latvian;mg Malagasy;"
        "mk Macedonian;ml Malayalam;mn Mongolian;mr Marathi;ms Malay;mt Maltese;my Burmese;ne Nepali;nl Dutch;"
        "no Norwegian;or Odia;pa Punjabi;pl Polish;ps Pashto;pt Portuguese;ro Romanian;ru Russian;sd Sindhi;si Sinhala;"
        "sk Slovak;sl Slovenian;so Somali;sq Albanian;sr Serbian;sv Swedish;sw Swahili;ta Tamil;te Telugu;tg Tajik;"
        "th Thai;tl Filipino;tr Turkish;uk Ukrainian;ur Urdu;uz Uzbek;vi Vietnamese;xh Xhosa;yi Yiddish;yo Yoruba;"
        "zh Chinese;zu Zulu;",
    )
)


def name_of(code: str) -> str:
    """Return what a language is called in English, with its script and region."""
    subtags = subtags_of(code)
    if subtags is None or subtags.language not in _NAMES:
        return code
    details = ", ".join(filter(None, (subtags.script, subtags.region)))
    return f"{_NAMES[subtags.language]} ({details})" if details else _NAMES[subtags.language]

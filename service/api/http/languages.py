"""Languages of the models that a caller may use: their names, and which can be translated into which."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from model.language_codes import subtags_of
from service.records import ModelInfo, TranslationResult
from service.translate.routes import find_route, source_languages
from service.translate.routing import Router

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


_LISTS_KEPT = 16  # by the models that a caller may use; a list of many takes long, and anybody may ask


class Offered(NamedTuple):
    """A language that can be translated from."""

    code: str  # BCP 47
    targets: tuple[str, ...]  # that it can be translated into, also through a third language


def name_of(code: str) -> str:
    """Return what a language is called in English, with its script and region."""
    subtags = subtags_of(code)
    if subtags is None or subtags.language not in _NAMES:
        return code
    details = ", ".join(filter(None, (subtags.script, subtags.region)))
    return f"{_NAMES[subtags.language]} ({details})" if details else _NAMES[subtags.language]


def offered(infos: Sequence[ModelInfo]) -> list[Offered]:
    """Return the languages that these models translate from, in the order of their codes."""
    return list(_offered(tuple(infos)))


@lru_cache(maxsize=_LISTS_KEPT)
def _offered(infos: tuple[ModelInfo, ...]) -> tuple[Offered, ...]:
    targets, languages = target_languages(infos), []
    for source in sorted(source_languages(infos)):
        direct = {code for info in infos if source in info.source_languages for code in info.target_languages}
        can = [code for code in targets if code != source and (code in direct or find_route(infos, source, code))]
        languages.append(Offered(source, tuple(can)))
    return tuple(languages)


def target_languages(infos: Sequence[ModelInfo]) -> list[str]:
    """Return the languages that these models translate into, in the order of their codes."""
    return sorted({code for info in infos for code in info.target_languages})


def source_of(result: TranslationResult, router: Router) -> str:
    """Return the language that the first of the models which have answered translates from."""
    name = result.model.partition(",")[0].partition("+")[0]
    infos = (model.info for model in router.translator.catalogue.models)
    return next((info.source_language for info in infos if info.name == name), "")

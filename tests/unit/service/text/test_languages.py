"""Which languages on offer serve for a language that is asked for."""

from service.text.scripts import Closeness, closeness

CASES = [
    ("en", "en", Closeness.EXACT),
    ("EN-us", "en-US", Closeness.EXACT),
    ("en-US", "en", Closeness.GENERAL),
    ("en_us", "en", Closeness.GENERAL),
    ("en-US-u-hc-h12", "en", Closeness.GENERAL),
    ("de-1996", "de", Closeness.GENERAL),
    ("zh-Hant-TW", "zh-Hant", Closeness.GENERAL),
    ("en", "en-US", Closeness.LIKELY),
    ("pt", "pt-BR", Closeness.LIKELY),
    ("zh-TW", "zh-Hant", Closeness.LIKELY),
    ("zh-CN", "zh", Closeness.GENERAL),
    ("zh", "zh-Hans", Closeness.LIKELY),
    ("sr", "sr-Cyrl", Closeness.LIKELY),
    ("en", "en-GB", Closeness.REGION),
    ("en-US", "en-GB", Closeness.REGION),
    ("zh-HK", "zh-Hant", Closeness.REGION),
    ("zh", "zh-Hant", Closeness.SCRIPT),
    ("sr", "sr-Latn", Closeness.SCRIPT),
    ("zh-TW", "zh-Hans", None),
    ("zh-TW", "zh", None),
    ("sr-Latn", "sr", None),
    ("sr-ME", "sr-Cyrl", None),  # Montenegro writes Latin
    # Codes of yesterday and of other standards.
    ("iw", "he", Closeness.GENERAL),
    ("he", "iw", Closeness.GENERAL),
    ("in", "id", Closeness.GENERAL),
    ("ji", "yi", Closeness.GENERAL),
    ("no", "nb", Closeness.GENERAL),
    ("nb-NO", "no", Closeness.GENERAL),
    ("eng", "en", Closeness.GENERAL),
    ("ger", "de", Closeness.GENERAL),
    ("deu", "de", Closeness.GENERAL),
    ("en", "eng_Latn", Closeness.LIKELY),
    ("zh-CN", "zho_Hans", Closeness.LIKELY),
    ("cmn", "zh", Closeness.GENERAL),
    ("arb", "ar", Closeness.GENERAL),
    ("tl", "fil", Closeness.GENERAL),
    ("sh", "sr-Latn", Closeness.GENERAL),
    ("zh-min-nan", "nan", Closeness.GENERAL),
    # Other languages, however near.
    ("nn", "nb", None),
    ("da", "no", None),
    ("hr", "sr-Latn", None),
    ("gsw", "de", None),
    ("yue", "zh", None),
    ("en", "de", None),
    # What is no tag.
    ("a", "A", Closeness.EXACT),
    ("a", "b", None),
    ("english please", "en", None),
    ("en-", "en", None),
    ("en" + "-aaaaaaaa" * 100, "en", None),
    ("x-klingon", "x-klingon", Closeness.EXACT),
]


def test_closeness():
    found = [(asked, offered, closeness(asked, offered)) for asked, offered, _ in CASES]

    assert found == CASES

"""Languages by the codes of several standards."""

import pytest

from model.language_codes import Subtags, bcp47_of, flores_of, subtags_of


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("iw-IL", Subtags("he", "", "IL")),
        ("sh", Subtags("sr", "Latn")),
        ("zho_Hant_tw", Subtags("zh", "Hant", "TW")),
        ("prs_Arab", Subtags("fa", "Arab", "AF")),
        ("", None),
        ("ü", None),
        ("\0", None),
    ],
)
def test_tags_in_today_s_codes(tag, expected):
    assert subtags_of(tag) == expected


def test_what_is_likely_is_filled_in_and_what_is_said_stays():
    assert Subtags("zh", "", "TW").likely == Subtags("zh", "Hant", "TW")
    assert Subtags("zh", "Hans", "TW").likely == Subtags("zh", "Hans", "TW")
    assert Subtags("en", "", "GB").likely == Subtags("en", "Latn", "GB")
    assert Subtags("xx").likely == Subtags("xx")


@pytest.mark.parametrize(
    ("code", "tag"),
    [
        ("fra_Latn", "fr"),
        ("arb_Arab", "ar"),
        ("ary_Arab", "ary"),
        ("zho_Hans", "zh"),
        ("zho_Hant", "zh-Hant"),
        ("kor_Hang", "ko"),
        ("ace_Latn", "ace"),
        ("ace_Arab", "ace-Arab"),
        ("twi_Latn", "tw"),
        ("prs_Arab", "fa-AF"),
        ("cmn_Hant", "zh-Hant"),
        ("pt_BR", "pt-BR"),
        ("not a code", "not a code"),
    ],
)
def test_the_shortest_tag_of_a_code(code, tag):
    assert bcp47_of(code) == tag


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("fr", "fra_Latn"),
        ("ar", "arb_Arab"),
        ("zh", "zho_Hans"),
        ("zh-TW", "zho_Hant"),
        ("ko", "kor_Hang"),
        ("no", "nob_Latn"),
        ("sr", "srp_Cyrl"),
        ("fil", "tgl_Latn"),
        ("not a tag", ""),
    ],
)
def test_what_flores_calls_a_language(tag, code):
    assert flores_of(tag) == code

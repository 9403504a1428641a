"""DeepL's Python client with another server's address."""

import deepl
from cases import FULL, GUARDED, KEY, MARKUP, NAMES, OPEN, TEXT, expect, raised, run

deepl.http_client.max_network_retries = 0  # it tries refused calls again for half a minute
client = deepl.DeepLClient(KEY, server_url=OPEN)


def text() -> None:
    result = client.translate_text(TEXT, source_lang="EN", target_lang="DE", formality="more", context="a house")
    expect((result.text, result.detected_source_lang, result.billed_characters), (TEXT, "EN", len(TEXT)))
    expect(client.translate_text("Die Katze schläft.", target_lang="EN-US").text, "Die Katze schläft.")
    expect([one.code for one in client.get_source_languages()], ["DE", "EN"])
    expect([one.code for one in client.get_target_languages()], ["DE", "EN-GB", "EN-US"])
    guarded = deepl.DeepLClient(KEY, server_url=GUARDED)
    guarded.translate_text(TEXT, source_lang="EN", target_lang="DE")
    assert (guarded.get_usage().character.count or 0) >= len(TEXT)


def several() -> None:
    results = client.translate_text([TEXT, "", "ok"], source_lang="EN", target_lang="DE", split_sentences="1")
    expect([one.text for one in results], [TEXT, "", "ok"])


def html() -> None:
    expect(client.translate_text(MARKUP, target_lang="DE", tag_handling="html").text, MARKUP)
    markup = "<a>The <x>cat</x> sleeps.</a>"
    expect(client.translate_text(markup, target_lang="DE", tag_handling="xml", ignore_tags="x").text, markup)


def unknown_language() -> None:
    error = raised(deepl.DeepLException, lambda: client.translate_text(TEXT, target_lang="XX"))
    assert "there is no model" in str(error)


def bad_key() -> None:
    stranger = deepl.DeepLClient("other", server_url=GUARDED)
    raised(deepl.AuthorizationException, lambda: stranger.translate_text(TEXT, target_lang="DE"))


def overload() -> None:
    full = deepl.DeepLClient(KEY, server_url=FULL)
    raised(deepl.TooManyRequestsException, lambda: full.translate_text(TEXT, target_lang="DE"))


run(dict(zip(NAMES, (text, several, html, unknown_language, bad_key, overload), strict=True)))

"""DeepL's Python client with another server's address."""

import io

import deepl
from cases import FULL, GUARDED, KEY, MARKUP, NAMES, OPEN, TEXT, expect, expect_letter, letter, raised, run

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


def documents() -> None:
    fetched = io.BytesIO()
    status = client.translate_document(letter(), fetched, source_lang="EN", target_lang="DE", filename="letter.docx")
    expect((status.done, status.billed_characters), (True, len(TEXT)))
    expect_letter(fetched.getvalue())
    error = raised(
        deepl.DocumentTranslationException,
        lambda: client.translate_document(b"no package", io.BytesIO(), target_lang="DE", filename="letter.docx"),
    )
    assert "no ZIP package" in str(error)


def glossaries() -> None:
    guarded = deepl.DeepLClient(KEY, server_url=GUARDED)
    made = guarded.create_glossary("animals", source_lang="EN", target_lang="DE", entries={"cat": "Kater"})
    expect([one.glossary_id for one in guarded.list_glossaries()], [made.glossary_id])
    expect(guarded.get_glossary_entries(made), {"cat": "Kater"})
    found = guarded.translate_text("The cat sleeps.", source_lang="EN", target_lang="DE", glossary=made)
    expect(found.text, "The Kater sleeps.")
    found = guarded.translate_text("The cat sleeps.", source_lang="EN", target_lang="DE", glossary_ids=[made])
    expect(found.text, "The Kater sleeps.")
    fetched = io.BytesIO()
    guarded.translate_document(
        "The cat sleeps.", fetched, source_lang="EN", target_lang="DE", filename="a.txt", glossary_ids=[made]
    )
    expect(fetched.getvalue().decode(), "The Kater sleeps.")
    guarded.delete_glossary(made)
    raised(deepl.GlossaryNotFoundException, lambda: guarded.get_glossary(made.glossary_id))


cases = dict(zip(NAMES, (text, several, html, unknown_language, bad_key, overload), strict=True))
run({**cases, "documents": documents, "glossaries": glossaries})

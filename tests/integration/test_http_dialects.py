"""LibreTranslate's and DeepL's protocols at the real server, whose models say everything again as it is."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import ClassVar
from urllib.parse import urlsplit

import pytest

from service.api import http
from tests.fakes.calls import eventually
from tests.fakes.echo_bundle import ModelRepository
from tests.fakes.http_requests import ask, post, post_form, post_multipart
from tests.fakes.packages import packed, parts_of, word
from tests.fakes.secured_server import guarded, keys
from tests.fakes.server_process import ServerProcess, start

__all__ = ["guarded", "keys"]

ENGLISH, GERMAN = "The cat sleeps in the garden.", "Die Katze schnurrt laut im Garten."
CAT = word("<w:p><w:r><w:t>The cat sleeps.</w:t></w:r></w:p>")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """English to German and back, to Hebrew and to traditional Chinese, and a glossary."""
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
    for source, target in (("en", "de"), ("de", "en"), ("en", "he"), ("en", "zh-Hant")):
        repository.put(f"{source}-{target}", "1", languages=(source, target))
    glossaries = tmp_path_factory.mktemp("glossaries")
    (glossaries / "animals.tsv").write_text("cat\tKatze\n")
    server = start(
        None,
        tmp_path_factory.mktemp("server"),
        DRAGOMAN_MODELS__DIRECTORY=str(repository.directory),
        DRAGOMAN_MODELS__GLOSSARIES=str(glossaries),
        DRAGOMAN_MODELS__UPLOADED_GLOSSARIES=str(tmp_path_factory.mktemp("uploaded")),
        DRAGOMAN_LISTEN__CORS_ORIGINS="https://a.example",
        DRAGOMAN_SECURITY__IDENTITY_HEADER="x-user",
        DRAGOMAN_SECURITY__TRUSTED_PROXIES="127.0.0.1",
    )
    yield server
    server.process.kill()
    server.process.wait()


class TestLibreTranslate:
    def test_text_gives_a_text_and_a_list_gives_lists(self, server):
        one = post(server.http_port, "/translate", q=ENGLISH, source="en", target="de").json()
        many = post(server.http_port, "/translate", q=[ENGLISH, "ok"], source="en", target="de", alternatives=2).json()

        assert (one["translatedText"], sorted(one)) == (ENGLISH, ["translatedText", "warnings"])
        assert many["translatedText"] == [ENGLISH, "ok"]
        assert [len(texts) for texts in many["alternatives"]] == [2, 2]

    def test_detected_languages_come_as_the_texts_do(self, server):
        one = post(server.http_port, "/translate", q=ENGLISH, source="auto", target="he").json()
        many = post(server.http_port, "/translate", q=[ENGLISH, GERMAN], source="auto", target="he").json()

        assert one["detectedLanguage"]["language"] == "en"
        assert [found["language"] for found in many["detectedLanguage"]] == ["en", "de"]
        assert all(50 < found["confidence"] <= 100 for found in many["detectedLanguage"])

    def test_certainty_is_what_was_measured_where_only_one_language_is_possible(self, server):
        sure, unsure, nothing = (
            post(server.http_port, "/translate", q=text, source="auto", target="he").json()["detectedLanguage"]
            for text in (ENGLISH, "Hotel", "42")
        )

        assert sure["language"] == "en"
        assert 95 < sure["confidence"] < 100
        assert 0 < unsure["confidence"] < 95
        assert nothing == {"confidence": 0.0, "language": "de"}

    def test_text_in_the_target_language_comes_back_as_it_is(self, server):
        other = "Il treno è in ritardo di nuovo."
        one = post(server.http_port, "/translate", q=GERMAN, source="auto", target="de").json()
        many = post(server.http_port, "/translate", q=[GERMAN, ENGLISH, other], target="de", alternatives=1).json()

        assert (one["translatedText"], one["detectedLanguage"]["language"]) == (GERMAN, "de")
        assert 95 < one["detectedLanguage"]["confidence"] < 100
        assert many["translatedText"] == [GERMAN, ENGLISH, other]
        assert [found["language"] for found in many["detectedLanguage"]] == ["de", "en", "it"]
        assert [len(texts) for texts in many["alternatives"]] == [0, 1, 0]

    @pytest.mark.parametrize(("source", "target"), [("en", "en"), ("de", "de-AT"), ("he", "iw")])
    def test_source_that_is_the_target_gives_the_text_back(self, server, source, target):
        answer = post(server.http_port, "/translate", q=GERMAN, source=source, target=target)

        assert (answer.status, answer.json()) == (200, {"translatedText": GERMAN})

    def test_file_in_the_target_language_comes_back_as_it_is(self, server):
        content = f"{GERMAN}\n\n{ENGLISH}\n".encode()
        answer = post_multipart(server.http_port, "/translate_file", [("target", "de")], ("a.txt", content))
        url = urlsplit(answer.json()["translatedFileUrl"])

        assert ask(url.port or 0, "GET", url.path).body == content

    def test_warnings_are_in_the_answer_and_in_a_header(self, server):
        copied = {"kind": "copied", "count": 1, "message": "the translation is the source"}
        wish = {"source": "en", "target": "de"}
        one = post(server.http_port, "/translate", q=ENGLISH, **wish)
        many = post(server.http_port, "/translate", q=["Anna", f"{ENGLISH} The dog barks at the cat."], **wish)
        none = post(server.http_port, "/translate", q=["Anna", "42"], **wish)

        assert (one.json()["warnings"], one.headers["x-translation-warnings"]) == ([copied], "copied=1")
        assert (many.json()["warnings"], many.headers["x-translation-warnings"]) == (
            [[], [{**copied, "count": 2}]],
            "copied=2",
        )
        assert "warnings" not in none.json()
        assert "x-translation-warnings" not in none.headers

    def test_text_in_another_language_is_warned_of(self, server):
        answer = post(server.http_port, "/translate", q="Il treno è in ritardo di nuovo.", target="de")

        assert answer.headers["x-translation-warnings"] == "not_translated=1"
        assert "the language it" in answer.json()["warnings"][0]["message"]

    def test_forms_say_the_same_as_json(self, server):
        fields = [("q", "déjà vu\r\nok"), ("source", "en"), ("target", "de"), ("format", "text"), ("api_key", "")]
        answers = [
            post(server.http_port, "/translate", **dict(fields)),
            post_form(server.http_port, "/translate", *fields),
            post_multipart(server.http_port, "/translate", fields),
        ]

        assert [answer.status for answer in answers] == [200] * 3
        assert len({answer.body for answer in answers}) == 1

    def test_html_keeps_its_tags(self, server):
        text = '<p title="a">The <b>cat</b> sleeps.</p><!-- x -->'
        answer = post(server.http_port, "/translate", q=text, source="en", target="de", format="html").json()

        assert answer["translatedText"] == text

    @pytest.mark.parametrize("target", ["iw", "he", "zt", "zh-TW", "zh-Hant"])
    def test_codes_of_other_days_mean_what_they_meant(self, server, target):
        assert post(server.http_port, "/translate", q="ok", source="en", target=target).status == 200

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"source": "xx"}, "there is no model for 'xx' to 'de'"),
            ({"target": "zh-Hans"}, "there is no model"),
            ({"target": "auto"}, "target: auto is accepted for the source alone: name a language"),
            ({"q": ""}, "q: "),
            ({"q": [1]}, "q: "),
            ({"q": None}, "q"),
            ({"format": "docx"}, "format"),
            ({"alternatives": -1}, "alternatives"),
            ({"q": ["ok", "x" * 20_000]}, "q[1] has 20000 characters, at most 10000 are accepted"),
        ],
    )
    def test_wrong_request_is_an_error_that_names_the_field(self, server, fields, words):
        answer = post(server.http_port, "/translate", **{"q": "ok", "source": "en", "target": "de", **fields})

        assert answer.status == 400
        assert words in answer.json()["error"]

    def test_languages_have_their_targets_also_in_a_get_with_a_body(self, server):
        plain = ask(server.http_port, "GET", "/languages").json()
        with_body = post_form(server.http_port, "/languages", ("api_key", "x"), verb="GET").json()

        assert {one["code"]: one["targets"] for one in plain} == {
            "en": ["de", "he", "zh-Hant"],
            "de": ["en", "he", "zh-Hant"],
        }
        assert {one["name"] for one in plain} == {"English", "German"}
        assert with_body == plain

    def test_detection_gives_a_list_that_is_empty_where_there_is_no_language(self, server):
        (found,) = post(server.http_port, "/detect", q=GERMAN).json()

        assert found["language"] == "de"
        assert post(server.http_port, "/detect", q="123 456").json() == []

    def test_settings_and_health_are_as_pages_read_them(self, server):
        settings = ask(server.http_port, "GET", "/frontend/settings").json()

        assert (settings["charLimit"], settings["keyRequired"], settings["suggestions"]) == (10_000, False, False)
        assert ".html" in settings["supportedFilesFormat"]
        assert settings["language"]["source"] == {"code": "auto", "name": "Auto Detect"}
        assert ask(server.http_port, "GET", "/health").json() == {"status": "ok"}

    def test_translated_file_is_fetched_where_the_answer_says(self, server):
        content = b"1\n00:00:01,000 --> 00:00:02,000\nThe cat sleeps.\n"
        wish = [("source", "en"), ("target", "de")]
        answer = post_multipart(server.http_port, "/translate_file", wish, ("a b.srt", content))
        url = urlsplit(answer.json()["translatedFileUrl"])
        file = ask(url.port or 0, "GET", url.path)

        assert (file.status, file.body) == (200, content)
        assert answer.headers["x-translation-warnings"] == "copied=1"
        assert file.headers["content-disposition"] == "attachment; filename*=UTF-8''a%20b.srt"
        assert ask(server.http_port, "GET", "/download_file/other.srt").status == 400

    def test_answer_says_what_stays_as_it_is(self, server):
        file = ("a.docx", packed({**parts_of(CAT), "word/vbaProject.bin": "x"}))
        answer = post_multipart(server.http_port, "/translate_file", [("source", "en"), ("target", "de")], file)

        assert answer.json()["remarks"] == ["the file has macros, which stay as they are"]

    def test_translated_file_behind_a_proxy_with_tls_is_fetched_with_tls(self, server):
        wish = [("source", "en"), ("target", "de")]
        file = ("a.txt", b"ok")
        answer = post_multipart(server.http_port, "/translate_file", wish, file, {"X-Forwarded-Proto": "https"})

        assert answer.json()["translatedFileUrl"].startswith(f"https://127.0.0.1:{server.http_port}/download_file/")

    @pytest.mark.parametrize(
        ("name", "content", "words"),
        [
            ("a.xyz", b"x", "suffixes"),
            ("a.docx", b"x", "no ZIP package"),
            ("a.txt", b"\xff", "UTF-8"),
            ("a.xml", b"<a>", "file"),
            ("a.html", b"<p>ok</p>\n\n<p>" + b"word " * 4_000 + b"</p>", "line 3 of the file has 20007 characters"),
        ],
    )
    def test_file_that_cannot_be_translated_is_refused_by_name(self, server, name, content, words):
        wish = [("source", "en"), ("target", "de")]
        answer = post_multipart(server.http_port, "/translate_file", wish, (name, content))

        assert answer.status == 400
        assert words in answer.json()["error"]


class TestDeepL:
    def test_text_in_the_target_language_comes_back_with_its_language(self, server):
        texts = [GERMAN, ENGLISH, "Il treno è in ritardo di nuovo."]
        answer = post(server.http_port, "/v2/translate", text=texts, target_lang="DE").json()
        same = post(server.http_port, "/v2/translate", text=[ENGLISH], source_lang="EN", target_lang="EN-GB").json()

        assert [one["text"] for one in answer["translations"]] == texts
        assert [one["detected_source_language"] for one in answer["translations"]] == ["DE", "EN", "IT"]
        assert [len(one.get("warnings", ())) for one in answer["translations"]] == [0, 1, 1]
        assert same["translations"] == [
            {"detected_source_language": "EN", "text": ENGLISH, "billed_characters": len(ENGLISH)}
        ]

    def test_texts_come_back_in_order_with_language_and_characters(self, server):
        answer = post(server.http_port, "/v2/translate", text=[ENGLISH, GERMAN, ""], target_lang="HE").json()

        assert [one["text"] for one in answer["translations"]] == [ENGLISH, GERMAN, ""]
        assert [one["detected_source_language"] for one in answer["translations"]][:2] == ["EN", "DE"]
        assert [one["billed_characters"] for one in answer["translations"]] == [len(ENGLISH), len(GERMAN), 0]

    def test_form_has_a_field_for_each_text(self, server):
        fields = [("text", "one"), ("text", "two"), ("target_lang", "EN-US"), ("source_lang", "DE")]
        answer = post_form(server.http_port, "/v2/translate", *fields).json()

        assert [one["text"] for one in answer["translations"]] == ["one", "two"]
        assert answer["translations"][0]["detected_source_language"] == "DE"

    def test_what_is_not_supported_is_named_and_does_no_harm(self, server):
        wish = {"text": "ok", "target_lang": "DE", "preserve_formatting": True, "split_sentences": "1"}
        plain = post(server.http_port, "/v2/translate", **wish)
        more = post(server.http_port, "/v2/translate", formality="more", ignore_tags="x", context="a house", **wish)

        assert plain.json() == more.json()
        assert "x-ignored-parameters" not in plain.headers
        assert set(more.headers["x-ignored-parameters"].split(", ")) == {"formality", "ignore_tags", "context"}

    def test_warnings_are_beside_each_text_and_in_a_header(self, server):
        wish = {"source_lang": "EN", "target_lang": "DE"}
        answer = post(server.http_port, "/v2/translate", text=["Anna", ENGLISH, ENGLISH], **wish)

        kinds = [[one["kind"] for one in text.get("warnings", ())] for text in answer.json()["translations"]]
        assert (kinds, answer.headers["x-translation-warnings"]) == ([[], ["copied"], ["copied"]], "copied=2")

    def test_ignored_tags_keep_their_texts(self, server):
        wish = {"target_lang": "DE", "source_lang": "EN", "tag_handling": "xml", "glossary_id": "animals"}
        text = 'The cat <k a="1">The cat</k> sleeps. <kk>The cat</kk>'
        kept = post(server.http_port, "/v2/translate", text=[text], ignore_tags="k", **wish).json()
        plain = post(server.http_port, "/v2/translate", text=[text], **wish).json()

        assert '<k a="1">The cat</k>' in kept["translations"][0]["text"]
        assert "<kk>The cat</kk>" not in kept["translations"][0]["text"]
        assert plain["translations"][0]["text"].count("Katze") == 3

    @pytest.mark.parametrize("how", ["0", "1", "nonewlines", 0])
    def test_lines_tags_and_placeholders_are_kept_however_sentences_are_split(self, server, how):
        text = "One. Two {name} %d.\nThree https://example.org/a?b=c.\n\nFour."
        page = '<p>This is <b>bold</b>. And <a href="https://example.org/x?y=1">a link</a>.</p>'
        wish = {"target_lang": "DE", "source_lang": "EN", "split_sentences": how}
        plain = post(server.http_port, "/v2/translate", text=[text], **wish)
        html = post(server.http_port, "/v2/translate", text=[page], tag_handling="html", **wish)

        assert plain.json()["translations"][0]["text"] == text
        assert html.json()["translations"][0]["text"] == page
        assert "x-ignored-parameters" not in plain.headers
        assert html.headers.get("x-ignored-parameters") == ("split_sentences" if how == "1" else None)

    def test_targets_have_the_regions_that_clients_ask_for(self, server):
        sources = ask(server.http_port, "GET", "/v2/languages").json()
        targets = post_form(server.http_port, "/v2/languages", ("type", "target"), verb="GET").json()

        assert [one["language"] for one in sources] == ["DE", "EN"]
        assert [one["language"] for one in targets] == ["DE", "EN-GB", "EN-US", "HE", "ZH-HANT"]
        assert all(one["supports_formality"] is False for one in targets)

    @pytest.mark.parametrize(
        "fields",
        [{"text": []}, {"target_lang": "XX"}, {"tag_handling": "x"}, {"glossary_id": "none"}, {"text": [None]}],
    )
    def test_wrong_request_is_a_message(self, server, fields):
        answer = post(server.http_port, "/v2/translate", **{"text": ["ok"], "target_lang": "DE", **fields})

        assert answer.status == 400
        assert answer.json()["message"]


class TestDeepLDocuments:
    def handle(self, server, name: str = "a.docx", **fields: str) -> dict[str, str]:
        content = packed({**parts_of(CAT), "word/vbaProject.bin": "x"})
        wish = [("target_lang", "DE"), ("source_lang", "EN"), *fields.items()]
        answer = post_multipart(server.http_port, "/v2/document", wish, (name, content))
        assert answer.status == 200, answer.body
        handle: dict[str, str] = answer.json()
        return handle

    async def over(self, server, handle: dict[str, str]) -> dict[str, object]:
        path, key = f"/v2/document/{handle['document_id']}", handle["document_key"]

        def status() -> dict[str, object]:
            found: dict[str, object] = post(server.http_port, path, document_key=key).json()
            return found

        await eventually(lambda: status()["status"] in {"done", "error"})
        return status()

    async def test_document_is_sent_asked_after_and_fetched(self, server):
        handle = self.handle(server)
        status = await self.over(server, handle)
        path, key = f"/v2/document/{handle['document_id']}", handle["document_key"]
        result = post(server.http_port, f"{path}/result", document_key=key)

        assert (status["status"], status["billed_characters"]) == ("done", 15)
        assert "The cat sleeps." in parts_of(result.body)["word/document.xml"]
        assert result.headers["x-translation-warnings"] == "copied=1"
        assert result.headers["x-document-remarks"] == "the file has macros, which stay as they are"
        assert result.headers["content-disposition"].endswith("a.docx")
        for wrong in (f"{path}0", path):
            assert post(server.http_port, wrong, document_key=f"{key}0").status == 404

    async def test_error_of_a_document_is_in_its_status(self, server):
        handle = self.handle(server, filename="a.odt")
        status = await self.over(server, handle)
        result = post(
            server.http_port, f"/v2/document/{handle['document_id']}/result", document_key=handle["document_key"]
        )

        assert status["status"] == "error"
        assert "no OpenDocument file" in str(status["error_message"])
        assert (result.status, result.json()["message"]) == (400, status["error_message"])

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"target_lang": "XX"}, "there is no model"),
            ({"filename": "a.xyz"}, "suffixes"),
            ({"glossary_id": "nothing"}, "there is no glossary"),
            ({"output_format": "pdf"}, "its own format, docx"),
        ],
    )
    def test_document_that_cannot_be_translated_is_refused_at_once(self, server, fields, words):
        wish = {"target_lang": "DE", "source_lang": "EN", **fields}
        answer = post_multipart(server.http_port, "/v2/document", wish.items(), ("a.docx", b"x"))

        assert answer.status == 400
        assert words in answer.json()["message"]


class TestDeepLGlossaries:
    WISH: ClassVar = {"name": "mine", "source_lang": "en", "target_lang": "de"}

    def test_glossary_is_made_listed_read_used_and_deleted_by_its_owner_alone(self, server):
        port, mine, other = server.http_port, {"x-user": "a"}, {"x-user": "b"}
        made = post(port, "/v2/glossaries", mine, **self.WISH, entries="cat\tKater\n\ndog\tRüde", entries_format="tsv")
        glossary = made.json()["glossary_id"]
        path = f"/v2/glossaries/{glossary}"
        wish = {"text": ["The cat sleeps."], "source_lang": "EN", "target_lang": "DE", "glossary_id": glossary}
        several = {**wish, "glossary_id": "", "glossary_ids": [glossary]}

        assert (made.status, made.json()["entry_count"], made.json()["ready"]) == (201, 2, True)
        assert ask(port, "GET", "/v2/glossaries", headers=mine).json()["glossaries"] == [made.json()]
        assert ask(port, "GET", path, headers=mine).json() == made.json()
        assert ask(port, "GET", f"{path}/entries", headers=mine).body.decode() == "cat\tKater\ndog\tRüde"
        assert post(port, "/v2/translate", mine, **wish).json()["translations"][0]["text"] == "The Kater sleeps."
        assert post(port, "/v2/translate", mine, **several).json()["translations"][0]["text"] == "The Kater sleeps."
        assert "one is accepted" in post(port, "/v2/translate", mine, **several | wish).json()["message"]
        assert "is for de" in post(port, "/v2/translate", mine, **{**wish, "target_lang": "HE"}).json()["message"]
        assert post(port, "/v2/translate", other, **wish).status == 400
        assert ask(port, "GET", path, headers=other).status == 404
        assert ask(port, "DELETE", path, headers=other).status == 404
        assert ask(port, "DELETE", path, headers=mine).status == 204
        assert ask(port, "GET", path, headers=mine).status == 404

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"entries": "cat"}, "line 1: a term has a source and a target"),
            ({"entries": ""}, "has no terms"),
            ({"entries": "a,b\na,c", "entries_format": "csv"}, "'a' twice"),
            ({"entries": "a,b\ra,c", "entries_format": "csv"}, "'a' twice"),
            ({"entries": "a," + "b" * 140_000, "entries_format": "csv"}, "field larger than field limit"),
            ({"entries": "a\t" + "b" * 100_001}, "at most 100000"),
            ({"entries": "a\tb", "name": "n" * 2_000}, "1 to 1,024"),
        ],
    )
    def test_glossary_that_cannot_be_kept_is_refused(self, server, fields, words):
        answer = post(server.http_port, "/v2/glossaries", **{**self.WISH, **fields})

        assert answer.status == 400
        assert words in answer.json()["message"]

    def test_server_without_a_directory_keeps_none(self, guarded, keys):
        key = {"Authorization": f"DeepL-Auth-Key {keys.shop}"}
        answer = post(guarded.http_port, "/v2/glossaries", key, **self.WISH, entries="a\tb")

        assert (answer.status, "keeps no glossaries" in answer.json()["message"]) == (400, True)
        assert ask(guarded.http_port, "GET", "/v2/glossaries", headers=key).json() == {"glossaries": []}
        assert ask(guarded.http_port, "GET", "/v2/glossary-language-pairs", headers=key).status == 200


def test_description_names_every_operation_and_its_page_asks_for_nothing(server):
    spec = ask(server.http_port, "GET", "/spec").json()
    page = ask(server.http_port, "GET", "/docs")

    assert spec["openapi"] == "3.1.0"
    assert {"/translate", "/translate_file", "/detect", "/languages", "/v2/translate", "/v2/usage"} <= spec[
        "paths"
    ].keys()
    assert all(path in page.body.decode() for path in spec["paths"])
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert not {"<script", "http:", "https:"} & set(page.body.decode().split())
    assert json.dumps(spec).count("#/components/schemas/") == sum(
        json.dumps(spec).count(f'"#/components/schemas/{name}"') for name in spec["components"]["schemas"]
    )


async def test_counted_methods_are_those_of_the_dialects(server):
    post(server.http_port, "/translate", q=ENGLISH, source="en", target="de")
    post(server.http_port, "/v2/translate", text=ENGLISH, target_lang="DE")
    file = ("a.txt", b"ok")
    post_multipart(server.http_port, "/translate_file", [("source", "en"), ("target", "de")], file)
    post_multipart(server.http_port, "/v2/document", [("source_lang", "en"), ("target_lang", "de")], file)
    await eventually(lambda: server.metric("dragoman_queue_duration_seconds_count", method="deepl/document_work") >= 1)

    for method in [method for method in http.METHODS if not method.startswith("console/")]:
        assert server.metric("dragoman_queue_duration_seconds_count", method=method) >= 1


def test_keys_of_all_dialects_are_those_of_the_server(guarded, keys):
    text = {"q": "a", "source": "en", "target": "de"}
    good = post(guarded.http_port, "/translate", api_key=keys.shop, **text)
    deepl = {"Authorization": f"DeepL-Auth-Key {keys.shop}"}
    also_good = post(guarded.http_port, "/v2/translate", deepl, text="abc", target_lang="DE")
    bad = [
        post(guarded.http_port, "/translate", **text),
        post(guarded.http_port, "/translate", api_key="other", **text),
        post(guarded.http_port, "/v2/translate", text="a", target_lang="DE"),
        post_form(guarded.http_port, "/languages", ("api_key", "other")),
        post(guarded.http_port, "/translate", api_key=keys.elsewhere, **text),
    ]

    assert (good.status, also_good.status) == (200, 200)
    assert [answer.status for answer in bad] == [403, 403, 403, 403, 400]
    assert ask(guarded.http_port, "GET", "/languages").status == 200
    assert ask(guarded.http_port, "GET", "/v2/usage", headers=deepl).json()["character_count"] == 4
    assert guarded.metric("dragoman_client_characters_total", client="shop") == 4


async def test_full_server_says_when_to_come_again(start_server):
    server = start_server(DRAGOMAN_LIMITS__MAX_CONCURRENT_REQUESTS="1")
    holder = HTTPConnection("127.0.0.1", server.http_port)
    with server.held(), closing(holder):  # which nobody waits for
        holder.request("POST", "/translate", json.dumps({"q": "many words " * 20, "source": "en", "target": "de"}))
        await eventually(lambda: server.metric("dragoman_running_jobs") == 1)
        refused = [
            await asyncio.to_thread(post, server.http_port, "/translate", q="a", source="en", target="de"),
            await asyncio.to_thread(post, server.http_port, "/v2/translate", text="a", target_lang="DE"),
        ]

    assert [answer.status for answer in refused] == [429, 429]
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert server.metric("dragoman_requests_total", code="RESOURCE_EXHAUSTED") == 2


def test_pages_of_another_origin_may_call_where_a_setting_says_so(server):
    allowed, unknown = (
        ask(
            server.http_port,
            "OPTIONS",
            "/translate",
            headers={"Origin": origin, "Access-Control-Request-Method": "POST"},
        )
        for origin in ("https://a.example", "https://b.example")
    )

    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, "https://a.example")
    assert "access-control-allow-origin" not in unknown.headers

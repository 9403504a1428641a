"""DeepL's protocol at the real server: texts, documents, glossaries."""

from typing import ClassVar

import pytest

from tests.fakes.calls import eventually
from tests.fakes.dialect_server import CAT, ENGLISH, GERMAN, server
from tests.fakes.http_requests import ask, post, post_form, post_multipart
from tests.fakes.packages import packed, parts_of
from tests.fakes.secured_server import guarded, keys

__all__ = ["guarded", "keys", "server"]


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

"""LibreTranslate's protocol at the real server."""

from urllib.parse import urlsplit

import pytest

from tests.fakes.dialect_server import ENGLISH, GERMAN, server
from tests.fakes.http_requests import ask, post, post_form, post_multipart

__all__ = ["server"]


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

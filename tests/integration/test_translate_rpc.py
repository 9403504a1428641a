"""Translate over the wire: good and bad input against the real server with the echo runner."""

from typing import Any

import grpc
import pytest

from protos import translation_pb2 as pb
from tests.fakes.calls import calling, code_of, details_of, error_info, failure

INVALID, OK = grpc.StatusCode.INVALID_ARGUMENT, 0


@pytest.fixture
async def calls(server):
    async with calling(server.address) as opened:
        yield opened


def options(**values: Any) -> pb.TranslateOptions:
    return pb.TranslateOptions(**values)


class TestGoodInput:
    async def test_answer_names_model_counts_and_timings(self, calls):
        response = await calls.translate("Hi.")

        (translation,) = response.translations
        (hypothesis,) = translation.hypotheses
        assert (response.model, response.model_version) == ("echo", "1.2.3")
        assert (translation.status.code, translation.source_tokens, hypothesis.target_tokens) == (OK, 5, 5)
        assert hypothesis.finish_reason == pb.FINISH_REASON_END_OF_SENTENCE
        assert hypothesis.score == pytest.approx(-0.25)  # every token has -0.25; divided by the length
        assert response.timings.total_ms >= response.timings.decode_ms > 0.0

    @pytest.mark.promise("C10")
    @pytest.mark.parametrize("blank", ["", " ", "\t\n", "\x00\x1f\x7f\x85", "\u2003"])
    async def test_blank_text_is_ok_and_comes_back_as_it_is(self, calls, blank):
        response = await calls.translate("a", blank)

        (hypothesis,) = response.translations[1].hypotheses
        assert (response.translations[1].status.code, hypothesis.text, hypothesis.target_tokens) == (OK, blank, 0)
        assert response.translations[1].source_tokens == 0

    @pytest.mark.promise("C4")
    async def test_control_characters_in_a_sentence_are_spaces_and_line_breaks_stay(self, calls):
        assert await calls.texts("a\x00b\x07c\nd\x9fe") == ["a b c\nd e"]

    @pytest.mark.promise("C5")
    @pytest.mark.parametrize("text", ["f\u200box", "\u202eabc", "\ufeffabc", "\ufdfa" * 10, "\U0001f600 x", "e\u0301"])
    async def test_unusual_unicode_is_translated(self, calls, text):
        response = await calls.translate(text)

        assert response.translations[0].status.code == OK

    @pytest.mark.promise("C16")
    async def test_translation_is_cut_at_max_target_tokens(self, calls):
        response = await calls.translate("hello", options=options(max_target_tokens=3))

        (hypothesis,) = response.translations[0].hypotheses
        assert (hypothesis.text, hypothesis.target_tokens) == ("he", 3)
        assert hypothesis.finish_reason == pb.FINISH_REASON_LENGTH

    @pytest.mark.promise("C15")
    async def test_fields_of_a_newer_client_are_ignored(self, calls):
        data = pb.TranslateRequest(texts=["a"]).SerializeToString() + b"\xfa\x01\x03new"  # field 31

        response = await calls.send_bytes(data)

        assert response.translations[0].hypotheses[0].text == "a"


class TestOneBadText:
    @pytest.mark.promise("C11")
    async def test_bad_text_has_its_own_status_and_its_neighbours_are_translated(self, calls):
        response = await calls.translate("before", "x" * 100_000, "after")

        first, failed, last = response.translations
        assert (first.hypotheses[0].text, last.hypotheses[0].text) == ("before", "after")
        assert (first.status.code, failed.status.code, last.status.code) == (OK, INVALID.value[0], OK)
        assert not failed.hypotheses
        assert failed.status.message == "texts[1] has 100000 characters, at most 10000 are accepted"

    @pytest.mark.promise("C6")
    async def test_characters_that_stand_for_phrases_come_back_untouched(self, calls):
        bomb = "\ufdfa" * 1_000  # grows eighteenfold when normalised, if a model reads it

        response = await calls.translate("before", bomb)

        assert [one.hypotheses[0].text for one in response.translations] == ["before", bomb]
        assert response.translations[1].source_tokens == 0


class TestBadRequest:
    @pytest.mark.promise("C9")
    @pytest.mark.parametrize("count", [0, 257, 1_000_000])
    async def test_wrong_number_of_texts_is_refused(self, calls, count):
        error = await failure(calls.translate(*[""] * count))

        assert (error.code(), error.details()) == (INVALID, f"texts has {count} entries, from 1 to 256 are accepted")
        assert error_info(error).metadata["field"] == "texts"

    @pytest.mark.promise("C14")
    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ({"beam_size": 1_000}, "options.beam_size is 1000, from 1 to 16 is accepted"),
            ({"length_penalty": float("nan")}, "options.length_penalty is nan, from 0.0 to 5.0 is accepted"),
        ],
    )
    async def test_option_out_of_range_is_refused_with_the_range(self, calls, values, message):
        error = await failure(calls.translate("a", options=options(**values)))

        assert (error.code(), error.details()) == (INVALID, message)
        assert error_info(error).metadata["field"] == message.split()[0]

    @pytest.mark.promise("C12")
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"target_language": "fr"}, "there is no model for any language to 'fr'; language pairs: en-de"),
            ({"model": "large"}, "there is no model 'large'; loaded: echo"),
        ],
    )
    async def test_unknown_model_or_pair_is_not_found_and_says_what_there_is(self, calls, fields, message):
        error = await failure(calls.translate("a", **fields))

        assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, message)

    @pytest.mark.promise("C13")
    async def test_unknown_method_is_unimplemented(self, calls):
        method = calls.method("/dragoman.v1.TranslationService/Nothing")

        assert await code_of(method(b"")) is grpc.StatusCode.UNIMPLEMENTED


class TestBadBytes:
    @pytest.mark.promise("C2")
    @pytest.mark.parametrize("bad", [b"\xc3\x28", b"\xed\xa0\x80"])
    async def test_text_that_is_no_utf8_is_named(self, calls, bad):
        good = pb.TranslateRequest(texts=["good"]).SerializeToString()

        error = await failure(calls.send_bytes(good + bytes([0x0A, len(bad)]) + bad))

        assert (error.code(), error.details()) == (INVALID, "texts[1] is not valid UTF-8")

    @pytest.mark.promise("C1")
    async def test_malformed_message_leaves_the_connection_usable(self, calls):
        error = await failure(calls.send_bytes(b"\xff\xff\xff"))

        assert error.code() is INVALID
        assert error.details() == "the request is not a valid dragoman.v1.TranslateRequest message"
        assert await calls.texts("still here") == ["still here"]

    @pytest.mark.promise("C7")
    async def test_message_over_the_limit_is_refused_and_others_are_served(self, calls):
        error = await failure(calls.translate("x" * (5 << 20)))

        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "larger than max" in details_of(error)
        assert await calls.texts("small") == ["small"]

    @pytest.mark.promise("C8")
    async def test_limit_holds_for_what_a_compressed_message_becomes(self, calls):
        bomb = pb.TranslateRequest(texts=["x" * (5 << 20)])

        error = await failure(calls.send(bomb, compression=grpc.Compression.Gzip))

        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await calls.texts("small") == ["small"]


async def test_limits_of_a_request_can_be_set(start_server):
    server = start_server(
        DRAGOMAN_LIMITS__MAX_TEXTS="2",
        DRAGOMAN_LIMITS__MAX_CHARACTERS="5",
        DRAGOMAN_LIMITS__MAX_BEAM_SIZE="1",
        DRAGOMAN_LIMITS__MAX_MESSAGE_BYTES="2048",
    )
    async with calling(server.address) as calls:
        too_many = await failure(calls.translate("a", "b", "c"))
        too_long = await calls.translate("123456")
        too_wide = await failure(calls.translate("a", options=pb.TranslateOptions(beam_size=2)))
        too_large = await failure(calls.translate("x" * 3_000))
        default = await calls.translate("a")

    assert details_of(too_many) == "texts has 3 entries, from 1 to 2 are accepted"
    assert too_long.translations[0].status.code == INVALID.value[0]
    assert details_of(too_wide) == "options.beam_size is 2, from 1 to 1 is accepted"
    assert too_large.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert default.translations[0].hypotheses[0].text == "a"  # the model's default beam of 2 is cut to the limit

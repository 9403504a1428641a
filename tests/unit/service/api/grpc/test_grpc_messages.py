"""Messages to records and back; bad bytes become a named reason, never an exception."""

from dataclasses import replace

import grpc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protos import translation_pb2 as pb
from service.api.grpc.handlers import deserializer
from service.api.grpc.messages import (
    decode_request,
    encode_answers,
    encode_detected,
    encode_result,
    encode_scores,
)
from service.call import Call
from service.client.messages import (
    decode_detected,
    decode_result,
    decode_scores,
    decode_translation,
    encode_request,
)
from service.engine.wire import FinishReason
from service.errors import InternalError, InvalidInput, TooLong, Unavailable
from service.records import (
    DetectedLanguage,
    PairScore,
    Priority,
    ScoreResult,
    Span,
    TextWarning,
    TranslatedText,
    TranslateOptions,
    Translation,
    TranslationRequest,
    TranslationResult,
    WarningKind,
)

OPTIONS = st.builds(
    TranslateOptions,
    beam_size=st.none() | st.integers(0, 99),
    num_hypotheses=st.none() | st.integers(0, 99),
    length_penalty=st.none() | st.floats(width=32, allow_nan=False),
    patience=st.none() | st.floats(width=32, allow_nan=False),
    max_target_tokens=st.none() | st.integers(0, 9_999),
    use_shortlist=st.none() | st.booleans(),
    allow_smaller_beam=st.none() | st.booleans(),
    stop_repetition=st.none() | st.booleans(),
)
LANGUAGES = st.sampled_from(["", "en", "de-CH"])
SETTINGS = {
    "model": st.none() | st.sampled_from(["", "m"]),
    "source_language": LANGUAGES,
    "target_language": LANGUAGES,
    "options": OPTIONS,
    "priority": st.none() | st.sampled_from(Priority),
}
DONE = Translation(
    hypotheses=(TranslatedText(text="gut", score=-0.5, finish_reason=FinishReason.LENGTH, target_tokens=2),),
    source_tokens=3,
)
CALL = Call(method="m", started=0.0, deadline=0.0, queue_s=0.25, detokenize_s=0.5)
TOO_LONG = TooLong("has 9 tokens, at most 8 are accepted", field="texts[1]", index=1)


@given(st.builds(TranslationRequest, texts=st.lists(st.text("aß猫")).map(tuple), **SETTINGS))
def test_request_comes_back_as_it_was(request):
    assert decode_request(encode_request(request)) == request


def test_result_comes_back_with_each_text_s_error_about_its_place():
    result = TranslationResult(
        translations=(DONE, Translation(error=TOO_LONG, source_tokens=0), Translation(error=Unavailable("lost"))),
        model="m",
        model_version="2",
        beam_size=4,
    )

    message = encode_result(result, CALL)
    back = decode_result(message, 3)

    assert message.translations[1].status.message == "texts[1] has 9 tokens, at most 8 are accepted"
    assert back.translations[0] == DONE
    assert (back.timings.queue_ms, back.timings.detokenize_ms) == (250.0, 500.0)
    assert back.timings.total_ms > 0.0
    assert (back.model, back.model_version, back.beam_size) == ("m", "2", 4)
    too_long, lost = (translation.error for translation in back.translations[1:])
    assert isinstance(too_long, InvalidInput)
    assert too_long.about("line 8") == "line 8 has 9 tokens, at most 8 are accepted"
    assert isinstance(lost, Unavailable)


def test_error_of_a_text_of_a_stream_names_no_place():
    message = encode_answers([(7, TranslationResult(translations=[Translation(error=TOO_LONG)], model="m"))])

    (answer,) = message.translations
    assert (answer.id, message.model) == (7, "m")
    assert answer.translation.status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert answer.translation.status.message == "the text has 9 tokens, at most 8 are accepted"
    assert str(decode_translation(answer.translation).error) == answer.translation.status.message


def test_reply_with_another_number_of_answers_is_refused():
    result, scores = TranslationResult(translations=[DONE]), ScoreResult(scores=[PairScore()])
    found = [DetectedLanguage("de", 0.5)]

    with pytest.raises(InternalError, match="1 translations for 2 texts"):
        decode_result(encode_result(result, CALL), 2)
    with pytest.raises(InternalError, match="1 scores for 2 texts"):
        decode_scores(encode_scores(scores), 2)
    with pytest.raises(InternalError, match="1 languages for 2 texts"):
        decode_detected(encode_detected(found), 2)


def test_way_through_a_third_language_comes_back_with_warnings_that_have_no_segment():
    warnings = (TextWarning(WarningKind.COPIED, "copied", Span(1, 3)),)
    through = replace(DONE, pivot_language="en", pivot_warnings=warnings)

    (back,) = decode_result(encode_result(TranslationResult(translations=[through]), CALL), 1).translations

    assert (back.pivot_language, back.warnings) == ("en", warnings)


def test_class_of_a_later_version_is_as_if_it_were_not_asked_for():
    assert decode_request(pb.TranslateRequest.FromString(b"\x30\x63")).priority is None


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (TranslationRequest(texts=["good", "\ud800"]), r"texts\[1\] is not valid Unicode"),
        (TranslationRequest(texts=["x"], options=TranslateOptions(beam_size=-1)), "options cannot be sent"),
    ],
)
def test_what_the_wire_cannot_carry_is_refused(request_, words):
    with pytest.raises(InvalidInput, match=words):
        encode_request(request_)


parse = deserializer(pb.TranslateRequest)


def field(number: int, value: bytes) -> bytes:
    """A length-delimited field of at most 127 bytes."""
    return bytes([number << 3 | 2, len(value)]) + value


GENERIC = "the request is not a valid dragoman.v1.TranslateRequest message"


def complaint(data: bytes) -> tuple[str, str]:
    """Message and field of the error that these bytes are."""
    error = parse(data)
    assert isinstance(error, InvalidInput)
    return str(error), error.field


@pytest.mark.parametrize("bad", [b"\xc3\x28", b"\xed\xa0\x80", b"\xff", b"\xf0\x9f\x98"])
def test_text_that_is_no_utf8_is_named_by_its_index(bad):
    data = field(1, b"good") + field(2, b"en") + field(1, bad) + field(1, b"good")

    assert complaint(data) == ("texts[1] is not valid UTF-8", "texts[1]")


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",  # a tag that does not end
        b"\x0a\x05hi",  # a text shorter than it says
        b"\x0b",  # a group that does not end
        b"\x0f",  # wire type 7 does not exist
        field(5, b"\x08"),  # options cut short
        b"\x31\x00",  # a fixed64 cut short
        field(1, b"") * 9_000 + field(1, b"\xff"),  # too long for a search
    ],
)
def test_bytes_that_are_no_message_have_a_general_reason(data):
    assert complaint(data) == (GENERIC, "")


@given(st.binary(max_size=64))
@example(b"\x0a\x02\xc3\x28")
def test_any_bytes_give_a_message_or_a_reason(data):
    assert isinstance(parse(data), pb.TranslateRequest | InvalidInput)

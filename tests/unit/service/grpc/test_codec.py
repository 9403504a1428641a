"""Messages to records and back."""

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos import translation_pb2 as pb
from service.engine.job import FinishReason
from service.errors import InternalError, InvalidInput, TooLong, Unavailable
from service.grpc.codec import (
    decode_models,
    decode_request,
    decode_result,
    decode_translation,
    encode_answers,
    encode_model,
    encode_request,
    encode_result,
    encode_settings,
)
from service.queue.callers import Priority
from service.records import (
    Timings,
    TranslatedText,
    TranslateOptions,
    Translation,
    TranslationRequest,
    TranslationResult,
)
from tests.fakes.model_info import model_info

OPTIONS = st.builds(
    TranslateOptions,
    beam_size=st.none() | st.integers(0, 99),
    num_hypotheses=st.none() | st.integers(0, 99),
    length_penalty=st.none() | st.floats(width=32, allow_nan=False),
    patience=st.none() | st.floats(width=32, allow_nan=False),
    max_target_tokens=st.none() | st.integers(0, 9_999),
    use_shortlist=st.none() | st.booleans(),
    allow_smaller_beam=st.none() | st.booleans(),
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
TOO_LONG = TooLong("has 9 tokens, at most 8 are accepted", field="texts[1]", index=1)


@given(st.builds(TranslationRequest, texts=st.lists(st.text("aß猫")).map(tuple), **SETTINGS))
def test_request_comes_back_as_it_was(request):
    assert decode_request(encode_request(request)) == request


@given(st.builds(TranslationRequest, **SETTINGS))
def test_settings_of_a_stream_come_back_as_they_were(request):
    assert decode_request(encode_settings(request)) == request


def test_result_comes_back_with_each_text_s_error_about_its_place():
    timings = Timings(tokenize_ms=1, queue_ms=2, encode_ms=3, decode_ms=4, detokenize_ms=5, total_ms=15)
    result = TranslationResult(
        translations=(DONE, Translation(error=TOO_LONG, source_tokens=0), Translation(error=Unavailable("lost"))),
        model="m",
        model_version="2",
        timings=timings,
        beam_size=4,
    )

    message = encode_result(result)
    back = decode_result(message, 3)

    assert message.translations[1].status.message == "texts[1] has 9 tokens, at most 8 are accepted"
    assert (back.translations[0], back.timings) == (DONE, timings)
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


def test_result_with_another_number_of_translations_is_refused():
    with pytest.raises(InternalError, match="1 translations for 2 texts"):
        decode_result(encode_result(TranslationResult(translations=[DONE])), 2)


def test_class_of_a_later_version_is_as_if_it_were_not_asked_for():
    assert decode_request(pb.TranslateRequest.FromString(b"\x30\x63")).priority is None


def test_model_comes_back_as_it_was():
    info = model_info("m", "2", precision="fp16")

    assert decode_models(pb.ListModelsResponse(models=[encode_model(info)])) == [info]


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

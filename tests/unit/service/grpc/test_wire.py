"""Bad bytes become a named reason, never an exception."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protos import translation_pb2 as pb
from service.grpc.wire import Malformed, deserializer

parse = deserializer(pb.TranslateRequest)


def field(number: int, value: bytes) -> bytes:
    """A length-delimited field of at most 127 bytes."""
    return bytes([number << 3 | 2, len(value)]) + value


GENERIC = Malformed("the request is not a valid dragoman.v1.TranslateRequest message")


def test_good_bytes_become_the_message():
    request = pb.TranslateRequest(texts=["Grüße", ""], model="m", options=pb.TranslateOptions(beam_size=3))

    assert parse(request.SerializeToString()) == request


def test_unknown_fields_are_accepted():
    message = parse(field(1, b"hello") + field(99 - 84, b"from a newer client"))

    assert isinstance(message, pb.TranslateRequest)
    assert list(message.texts) == ["hello"]


@pytest.mark.parametrize("bad", [b"\xc3\x28", b"\xed\xa0\x80", b"\xff", b"\xf0\x9f\x98"])
def test_text_that_is_no_utf8_is_named_by_its_index(bad):
    data = field(1, b"good") + field(2, b"en") + field(1, bad) + field(1, b"good")

    assert parse(data) == Malformed("texts[1] is not valid UTF-8", "texts[1]")


def test_single_field_that_is_no_utf8_is_named():
    data = b"\x28\x96\x01" + b"\x31" + bytes(8) + b"\x3d" + bytes(4) + field(4, b"\xff")  # varint, fixed64, fixed32

    assert parse(data) == Malformed("model is not valid UTF-8", "model")


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",  # a tag that does not end
        b"\x0a\x05hi",  # a text shorter than it says
        b"\x0a",  # a tag without a value
        b"\x0b",  # a group that does not end
        b"\x0f",  # wire type 7 does not exist
        b"\x0a" + b"\xff" * 11,  # a length that is too long for a varint
        field(5, b"\x08"),  # options cut short
        b"\x31\x00",  # a fixed64 cut short
    ],
)
def test_bytes_that_are_no_message_have_a_general_reason(data):
    assert parse(data) == GENERIC


def test_looking_for_the_culprit_ends_after_ten_thousand_fields():
    data = field(1, b"") * 10_001 + field(1, b"\xff")

    assert parse(data) == GENERIC


def test_the_ten_thousandth_field_is_still_looked_at():
    data = field(1, b"") * 9_999 + field(1, b"\xff")

    assert parse(data) == Malformed("texts[9999] is not valid UTF-8", "texts[9999]")


@given(st.binary(max_size=64))
@example(b"\x0a\x02\xc3\x28")
def test_any_bytes_give_a_message_or_a_reason(data):
    assert isinstance(parse(data), pb.TranslateRequest | Malformed)

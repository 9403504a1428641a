"""The fuzzer itself: what it sends, and what it makes of what it saw."""

import random
from typing import Any

import pytest
from google.protobuf.message import DecodeError, Message

from protos import translation_pb2 as pb
from tests.fuzz.__main__ import FLAT_BYTES_PER_MESSAGE, facts
from tests.fuzz.messages import conversation, message

GOOD: dict[str, Any] = {
    "is_alive": True,
    "engine_restarts": 0.0,
    "codes": {"OK": 5, "stream INVALID_ARGUMENT": 1},
    "codes_in_the_books": {"OK": 9, "CANCELLED": 3},
    "admitted_share": 0.5,
    "legitimate_errors": {},
    "is_memory_judged": True,
    "front_bytes_per_message": {"slope_low": 0.0},
    "pages_out_of_balance": 0,
}


def parses(data: bytes, kind: type[Message]) -> bool:
    try:
        kind.FromString(data)
    except DecodeError:
        return False
    return True


def test_same_seed_gives_the_same_messages():
    first, second = random.Random(1), random.Random(1)

    assert [message(first) for _ in range(50)] == [message(second) for _ in range(50)]
    assert [conversation(first) for _ in range(10)] == [conversation(second) for _ in range(10)]


def test_every_whole_message_parses_and_some_of_the_others_do_not():
    seeded = random.Random(2)
    messages = [message(seeded) for _ in range(600)]

    assert all(parses(data, pb.TranslateRequest) for kind, data in messages if kind == "whole")
    for kind in ("damaged", "noise"):
        assert not all(parses(data, pb.TranslateRequest) for what, data in messages if what == kind)


def test_streams_are_orderly_up_to_their_last_message():
    seeded = random.Random(3)
    conversations = [conversation(seeded) for _ in range(100)]

    assert {kind for messages in conversations for kind, _ in messages[:-1]} == {"stream whole"}
    assert {messages[-1][0] for messages in conversations} == {
        "stream whole",
        "stream damaged",
        "stream noise",
        "stream disorderly",
    }


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, []),
        ({"codes_in_the_books": {"INTERNAL": 1}}, ["calls ended with the server's INTERNAL"]),
        ({"codes": {"stream lost by the client": 4}}, []),  # the client made it up
        ({"front_bytes_per_message": {"slope_low": FLAT_BYTES_PER_MESSAGE + 1}}, ["memory grows"]),
        ({"front_bytes_per_message": {"slope_low": 1e6}, "is_memory_judged": False}, []),
        ({"pages_out_of_balance": 1}, ["the books do not balance"]),
    ],
)
def test_figures_without_fault_hold_and_others_are_named(change, wrong):
    assert [what for what, is_so in facts({**GOOD, **change}).items() if is_so] == wrong

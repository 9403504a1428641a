"""A caller's texts: refused, cut into calls, and, in a stream, sent and answered over any sequence of losses."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.client.texts import (
    MAX_MESSAGE_CHARACTERS,
    MAX_MESSAGE_TEXTS,
    Unanswered,
    require_several,
    split_into_calls,
)
from service.errors import DeadlineExceeded, InternalError, InvalidInput, Overloaded, TooLong, Unavailable
from service.records import Translation

GOOD = Translation(source_tokens=3)
LOST = Translation(error=Unavailable("the engine was lost"))
AWAY = Unavailable("the server is draining")


@pytest.mark.parametrize("text", ["The cat", b"The cat"])
def test_one_text_alone_is_refused_with_what_to_do(text):
    with pytest.raises(TypeError, match=r"for one text give a list, \[text\]"):
        require_several(text)


@pytest.mark.parametrize("nothing", [None, b"bytes", 7])
def test_text_that_is_none_is_refused_with_its_number(nothing):
    with pytest.raises(TypeError, match=rf"texts\[2\] is of type {type(nothing).__name__}, every text must be a str"):
        list(split_into_calls(["one", "two", nothing], 9, 100))


def test_a_full_call_comes_before_the_next_text_is_taken_and_a_text_that_is_too_large_fails_alone():
    taken_so_far = []

    def texts() -> Iterator[str]:
        for text in ("a", "€€€", "b", "c", "x" * MAX_MESSAGE_CHARACTERS, "d"):
            taken_so_far.append(text)
            yield text

    calls = split_into_calls(texts(), 2, MAX_MESSAGE_CHARACTERS)
    first = next(calls)

    assert (first.texts, first.errors, taken_so_far) == (["a", "€€€"], {}, ["a", "€€€"])
    assert [[text[:1] for text in call.texts] for call in calls] == [["b", "c"], ["x"], ["d"]]


def test_text_that_fits_in_no_message_goes_blank_and_its_answer_is_the_error():
    (call,) = split_into_calls(["€€", "€€€"], 9, max_text_bytes=8)

    fits, too_large = call.answered([GOOD, GOOD])

    assert call.texts == ["€€", ""]
    assert fits is GOOD
    assert isinstance(too_large.error, TooLong)
    assert str(too_large.error) == "the text has 9 bytes in UTF-8, at most 8 fit in a message"


def taken(*texts: str, give_up_s: float = 60.0) -> Unanswered:
    unanswered = Unanswered(max_text_bytes=4 << 20, give_up_s=give_up_s)
    for text in texts:
        unanswered.take(text)
    return unanswered


def test_messages_are_bounded_in_texts_and_in_characters():
    short, long = taken(*["a"] * (MAX_MESSAGE_TEXTS + 1)), taken("a", "x" * MAX_MESSAGE_CHARACTERS, "b")

    assert [len(short.next_message(0.0)) for _ in range(3)] == [MAX_MESSAGE_TEXTS, 1, 0]
    assert [len(long.next_message(0.0)) for _ in range(4)] == [1, 1, 1, 0]


def test_text_of_a_lost_engine_is_sent_again_after_a_pause():
    unanswered = taken("a", "b")
    unanswered.next_message(0.0)

    assert unanswered.answered(0, LOST, 10.0) is None
    pause = unanswered.pause_s(10.0)
    assert pause is not None
    assert pause == pytest.approx(0.2, rel=0.21)
    assert unanswered.next_message(10.0) == []
    assert unanswered.next_message(10.0 + pause) == [(0, "a")]
    assert unanswered.pause_s(20.0) is None


def test_trouble_that_lasts_is_passed_on():
    unanswered = taken("a", give_up_s=5.0)
    unanswered.lost(AWAY, 0.0)
    unanswered.lost(AWAY, 5.0)

    with pytest.raises(Unavailable, match="draining"):
        unanswered.lost(AWAY, 5.1)


def test_an_answer_ends_the_trouble():
    unanswered = taken("a", "b", give_up_s=5.0)
    unanswered.lost(AWAY, 0.0)
    unanswered.answered(0, GOOD, 4.0)
    unanswered.lost(AWAY, 100.0)

    assert unanswered.lost(AWAY, 104.0) > 0


def test_trouble_counts_only_while_somebody_waits():
    unanswered = taken(give_up_s=5.0)
    unanswered.lost(AWAY, 0.0)
    unanswered.take("a")
    unanswered.lost(AWAY, 100.0)

    assert unanswered.lost(AWAY, 104.0) > 0


def test_text_of_an_engine_that_stays_lost_carries_that():
    unanswered = taken("a", give_up_s=5.0)

    assert unanswered.answered(0, LOST, 0.0) is None
    assert unanswered.answered(0, LOST, 5.1) is LOST


@pytest.mark.parametrize(
    "error",
    [
        InternalError("a bug"),
        InvalidInput("bad", field="options"),
        Overloaded("message too large", reason="", retry_after_s=0.0),
        DeadlineExceeded("nothing was answered in all that time"),
    ],
)
def test_what_does_not_pass_is_raised_at_once(error):
    with pytest.raises(type(error)):
        taken("a").lost(error, 0.0)


def test_pushback_is_waited_for():
    assert taken("a").lost(Overloaded("full", reason="streams", retry_after_s=9.0), 0.0) == 9.0


def test_server_s_deadline_after_progress_is_only_an_interruption():
    unanswered = taken("a", "b")
    unanswered.answered(0, GOOD, 0.0)

    assert unanswered.lost(DeadlineExceeded("6 h"), 1.0) > 0
    with pytest.raises(DeadlineExceeded):
        unanswered.lost(DeadlineExceeded("6 h"), 2.0)


@settings(deadline=None)
@given(st.data())
def test_every_text_is_answered_exactly_once_over_any_connections(data):
    """Random takes, sends, answers, lost engines and lost connections; then a server that works."""
    unanswered = taken(give_up_s=float("inf"))
    at_server: dict[int, str] = {}
    answered: list[int] = []
    now, num_taken = 0.0, 0

    def answer(number: int, translation: Translation) -> None:
        del at_server[number]
        if unanswered.answered(number, translation, now) is not None:
            answered.append(number)

    for _ in range(data.draw(st.integers(0, 60))):
        now += data.draw(st.sampled_from([0.0, 0.5, 10.0]))
        match data.draw(st.sampled_from(["take", "send", "answer", "engine", "connection"])):
            case "take":
                unanswered.take(f"text {num_taken}")
                num_taken += 1
            case "send":
                message = unanswered.next_message(now)
                assert not at_server.keys() & dict(message).keys()  # else the server would refuse the id
                at_server |= dict(message)
            case "answer" if at_server:
                answer(data.draw(st.sampled_from(sorted(at_server))), GOOD)
            case "engine" if at_server:
                answer(data.draw(st.sampled_from(sorted(at_server))), LOST)
            case "connection":
                at_server.clear()
                unanswered.lost(AWAY, now)
    unanswered.close()
    while not unanswered.is_done:
        now += 10.0
        at_server |= dict(unanswered.next_message(now))
        assert at_server, "a text is neither answered nor to be sent"
        for number in sorted(at_server):
            answer(number, GOOD)

    assert sorted(answered) == list(range(num_taken))

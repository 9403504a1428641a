"""Batches that are too large for the server."""

import pytest

from service.bulk.halving import is_too_large, translated_in_pieces
from service.errors import DeadlineExceeded, DragomanError, InvalidInput, Overloaded, TooLong
from service.records import Translation

MESSAGE = Overloaded("SERVER: Received message larger than max (5 vs. 4)", reason="", retry_after_s=0.0)
LATE = DeadlineExceeded("the limit of 60 s passed")
TOO_MANY = InvalidInput("texts has 9 entries, from 1 to 4 are accepted", field="texts")


def refused(reason: str) -> Overloaded:
    return Overloaded("no", reason=reason, retry_after_s=1.0)


class Server:
    """Takes batches of so many characters."""

    def __init__(self, most: int, refusal: DragomanError) -> None:
        self.most = most
        self.refusal = refusal
        self.asked: list[str] = []

    def __call__(self, batch: list[str]) -> list[Translation]:
        self.asked.append(" ".join(batch))
        if sum(map(len, batch)) > self.most:
            raise self.refusal
        return [Translation(source_tokens=len(text)) for text in batch]


@pytest.mark.parametrize(
    "refusal", [MESSAGE, TOO_MANY, LATE, refused("out_of_memory"), refused("deadline_unattainable")]
)
def test_batch_that_is_too_large_is_halved_until_it_fits_and_keeps_its_order(refusal):
    server = Server(3, refusal)

    translations = translated_in_pieces(["a", "bb", "c", "d", "ee"], server)

    assert [item.source_tokens for item in translations] == [1, 2, 1, 1, 2]
    assert server.asked == ["a bb c d ee", "a bb", "c d ee", "c", "d ee"]


def test_text_that_fits_in_no_message_has_that_as_its_error():
    before, too_long, after = translated_in_pieces(["a", "bbbbb", "c"], Server(3, MESSAGE))

    assert isinstance(too_long.error, TooLong)
    assert str(too_long.error) == f"the text does not fit in a message: {MESSAGE}"
    assert (before.error, after.error) == (None, None)


@pytest.mark.parametrize("refusal", [LATE, refused("out_of_memory"), refused("deadline_unattainable")])
def test_text_that_finds_no_memory_or_time_even_alone_is_the_server_s_trouble(refusal):
    server = Server(0, refusal)

    with pytest.raises(type(refusal)):
        translated_in_pieces(["a", "b"], server)

    assert server.asked == ["a b", "a"]


@pytest.mark.parametrize(
    "error",
    [
        refused("queue_full"),
        refused("token_budget"),
        refused("client_budget"),
        refused("queue_seconds"),
        Overloaded("Concurrent RPC limit exceeded!", reason="", retry_after_s=0.0),
        InvalidInput("options.beam_size is 99", field="options.beam_size"),
    ],
)
def test_want_of_room_and_wrong_options_are_not_mended_by_smaller_batches(error):
    assert not is_too_large(error, 64)

"""Batches that are too large for the server: which refusals mean that, and the same texts in smaller batches.

Pure; knows no channel and no job.
"""

from collections.abc import Callable, Sequence

from service.errors import DeadlineExceeded, DragomanError, InvalidInput, Overloaded, TooLong
from service.records import Translation

TranslateBatch = Callable[[list[str]], Sequence[Translation]]

# gRPC's own refusal of a request or an answer has no reason of ours, only these words.
_MESSAGE_TOO_LARGE = "message larger than max"
# Too large for the memory, or for the time that a call may take.  It may also be that others leave too little of both;
# then half of it is refused too, down to one text, and that waits.
_LESS_MAY_FIT = frozenset({"out_of_memory", "deadline_unattainable"})


def is_too_large(error: DragomanError, num_texts: int) -> bool:
    """Whether a batch that was refused like this has to become smaller; waiting alone does not help it."""
    if _exceeds_message(error):
        return True
    if num_texts == 1:
        return False
    if isinstance(error, InvalidInput):
        return error.field == "texts"  # more of them than the server takes in a call
    if isinstance(error, DeadlineExceeded):
        return True  # the server lives and was too slow: the same batch would be too slow again
    return isinstance(error, Overloaded) and error.reason in _LESS_MAY_FIT


def translated_in_pieces(batch: list[str], translate: TranslateBatch) -> list[Translation]:
    """The translations of a batch, by halves where it is too large; a text that is so by itself has that as its error.

    Raises:
        DragomanError: of a piece, for another reason.
    """
    try:
        return [*translate(batch)]
    except (InvalidInput, Overloaded, DeadlineExceeded) as error:
        if not is_too_large(error, len(batch)):
            raise
        if len(batch) == 1:
            return [Translation(error=TooLong(f"the text does not fit in a message: {error}", field="text"))]
    middle = len(batch) // 2
    return [piece for half in (batch[:middle], batch[middle:]) for piece in translated_in_pieces(half, translate)]


def _exceeds_message(error: DragomanError) -> bool:
    return isinstance(error, Overloaded) and not error.reason and _MESSAGE_TOO_LARGE in str(error)

"""What a caller gives as texts, checked as it is taken and cut into messages; for both clients.

Knows no call.  A text that no message can carry fails alone: a blank one, which costs nothing, is sent in its place.
"""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from service.errors import TooLong
from service.grpc.replies import check_encodable
from service.records import Translation

# Of several texts in one message; 1 MiB at most in UTF-8, and servers accept messages of 4 MiB by default.
MAX_MESSAGE_CHARACTERS = 1 << 18


def require_several(texts: object) -> None:
    """Make sure that these are texts, not one.

    Raises:
        TypeError: it is one, of which every character would be translated for itself.
    """
    if isinstance(texts, str | bytes):
        kind = type(texts).__name__
        raise TypeError(f"texts is one {kind}, an iterable of them is needed: for one text give a list, [text]")


def checked(texts: Iterable[str]) -> Iterator[str]:
    """These texts, one at a time.

    Raises:
        TypeError: something among them is no str; the message has its number, from 0.
        InvalidInput: UTF-8 cannot carry one of them; likewise.
    """
    for number, text in enumerate(texts):
        check_encodable(text, f"texts[{number}]")
        yield text


async def checked_async(texts: Iterable[str] | AsyncIterable[str]) -> AsyncIterator[str]:
    """As `checked`, of either kind of iterable."""
    if not isinstance(texts, AsyncIterable):
        for text in checked(texts):
            yield text
        return
    number = 0
    async for text in texts:
        check_encodable(text, f"texts[{number}]")
        yield text
        number += 1


def too_large(text: str, max_bytes: int) -> TooLong | None:
    """The error of a text that no message can carry, None for any other."""
    num_bytes = len(text.encode())
    if num_bytes <= max_bytes:
        return None
    return TooLong(f"the text has {num_bytes} bytes in UTF-8, at most {max_bytes} fit in a message", field="text")


@dataclass(frozen=True, slots=True)
class Batch:
    """The texts of one call, and the errors of those that cannot be sent."""

    texts: list[str] = field(default_factory=list)  # to send
    errors: dict[int, TooLong] = field(default_factory=dict)  # by place

    def add(self, text: str, error: TooLong | None) -> None:
        """Put this text at the end."""
        if error is not None:
            self.errors[len(self.texts)] = error
        self.texts.append(text if error is None else "")

    def answered(self, translations: Sequence[Translation]) -> Iterator[Translation]:
        """What became of each text, when these came back."""
        for place, translation in enumerate(translations):
            error = self.errors.get(place)
            yield translation if error is None else Translation(error=error)


def batches(texts: Iterable[str], size: int, max_text_bytes: int) -> Iterator[Batch]:
    """These texts, so many at a time, or as many as fit in a message; a full batch comes before the next text is taken.

    Raises:
        TypeError, InvalidInput: as `require_several` and `checked`.
    """
    require_several(texts)
    batch, num_characters = Batch(), 0
    for text in checked(texts):
        error = too_large(text, max_text_bytes)
        length = len(text) if error is None else 0
        if batch.texts and num_characters + length > MAX_MESSAGE_CHARACTERS:
            yield batch
            batch, num_characters = Batch(), 0
        batch.add(text, error)
        num_characters += length
        if len(batch.texts) == size:
            yield batch
            batch, num_characters = Batch(), 0
    if batch.texts:
        yield batch

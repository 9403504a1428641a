"""What a caller gives as texts, checked as it is taken; for both clients.

Knows no call.
"""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from itertools import islice

from service.api.replies import check_encodable


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


def batches(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """These texts, so many at a time.

    Raises:
        TypeError, InvalidInput: as `require_several` and `checked`.
    """
    require_several(texts)
    iterator = checked(texts)
    while batch := list(islice(iterator, size)):
        yield batch

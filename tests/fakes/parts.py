"""What the parts of a text are, put together again and one by one."""

from collections.abc import Iterable, Iterator

from service.text.segments import Part, Segment


def source_of(parts: Iterable[Part]) -> str:
    """Return the text that was taken apart."""
    return "".join(part if isinstance(part, str) else part.source for part in parts)


def segments_in(parts: Iterable[Part]) -> Iterator[Segment]:
    """Yield all segments, those in the tags of a segment right behind it."""
    for part in parts:
        if isinstance(part, Segment):
            yield part
            yield from segments_in(inner for tag in part.tags for inner in tag.parts)

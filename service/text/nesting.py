"""Whether a text has the tags that it should have, and whether they are nested.

Knows what the tags are, no words and no format: tags are found as strings.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from service.text.document import Tag, TagKind


def is_well_formed(tags: Sequence[Tag], result: str) -> bool:
    """Whether a text has the same tags as a segment, each as often, and nested if they are nested in the segment."""
    sources = [tag.source for tag in tags]
    found = list(_found(frozenset(sources), result))
    if Counter(found) != Counter(sources):
        return False
    return _is_nested(tags, found) or not _is_nested(tags, sources)


def _found(sources: frozenset[str], result: str) -> Iterator[str]:
    lengths = sorted({len(source) for source in sources}, reverse=True)
    firsts = {source[:1] for source in sources}
    place = 0
    while place < len(result):
        found = None
        if result[place] in firsts:
            found = next((result[place : place + n] for n in lengths if result[place : place + n] in sources), None)
        if found is not None:
            yield found
        place += len(found) if found else 1


def _is_nested(tags: Sequence[Tag], sources: Sequence[str]) -> bool:
    """Whether tags in this order are nested: each end tag ends the last start tag that is open."""
    alone = Counter(tag.source for tag in tags if tag.partner is None and tag.kind is not TagKind.POINT)
    ends: dict[str, set[str]] = {}
    for tag in tags:
        if tag.kind is TagKind.OPEN and tag.partner is not None:
            ends.setdefault(tag.source, set()).add(tags[tag.partner].source)
    points = {tag.source for tag in tags if tag.kind is TagKind.POINT}
    closing = {tag.source for tag in tags if tag.kind is TagKind.CLOSE}
    open_tags: list[str] = []
    for source in sources:
        if source in points:
            continue
        if source not in closing:
            open_tags.append(source)
        elif open_tags and source in ends.get(open_tags[-1], ()):
            open_tags.pop()
        elif not open_tags and alone[source] > 0:
            alone[source] -= 1
        else:
            return False
    return not Counter(open_tags) - alone

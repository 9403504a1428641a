"""Which tags of a text belong together, and what they say about being translated."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from service.text.lexer import Token, TokenKind, attributes
from service.text.syntax import Syntax

_SAYS_SOMETHING = re.compile("translate|mtype", re.IGNORECASE)


class Elements:
    """The elements of a text; numbers are those of its tokens.

    An end tag ends the nearest open element of its name and those that are open within it; where there is none, the end
    tag has no partner.
    """

    def __init__(self, text: str, tokens: Sequence[Token], syntax: Syntax) -> None:
        self.partners, self._ends = _matched(tokens, syntax)  # partners: of start tags and end tags
        self._orders = {
            index: order
            for index, token in enumerate(tokens)
            if token.kind in (TokenKind.OPEN, TokenKind.EMPTY)
            and (order := _order(text[token.begin : token.end], token.name, syntax)) is not None
        }
        says_yes = (self._orders.get(index, False) for index in range(len(tokens)))
        self._num_yes = list(accumulate(says_yes, initial=0))  # before each token

    def end_of(self, number: int) -> int:
        """Return the number of the token behind the element that begins with a start tag."""
        return self._ends.get(number, number + 1)

    def order_of(self, number: int) -> bool | None:
        """Return whether an element is to be translated; None: it does not say."""
        return self._orders.get(number)

    def has_language(self, number: int) -> bool:
        """Whether something within an element says that it is to be translated."""
        return self._num_yes[self.end_of(number)] > self._num_yes[number + 1]


def is_untouched(tag: str, name: str, syntax: Syntax) -> bool:
    """Whether an element with this start tag is not to be translated."""
    return _order(tag, name, syntax) is False


def _order(source: str, name: str, syntax: Syntax) -> bool | None:
    for attribute in attributes(source) if _SAYS_SOMETHING.search(source) else ():
        if attribute.name == "translate" and attribute.value.lower() in ("yes", "no"):
            return attribute.value.lower() == "yes"
        if attribute.name == "class" and not syntax.is_xml and "notranslate" in attribute.value.split():
            return False
        if attribute.name == "mtype" and attribute.value == "protected":
            return False
    return False if name in syntax.untouched else None


def _matched(tokens: Sequence[Token], syntax: Syntax) -> tuple[dict[int, int], dict[int, int]]:
    """Return the partners of tags, and the ends of elements by their start tags."""
    partners: dict[int, int] = {}
    ends: dict[int, int] = {}
    open_tags: list[int] = []
    num_open: Counter[str] = Counter()
    for number, token in enumerate(tokens):
        if token.kind is TokenKind.OPEN and token.name not in syntax.voids:
            open_tags.append(number)
            num_open[token.name] += 1
        elif token.kind is TokenKind.CLOSE and num_open[token.name]:
            while tokens[start := open_tags.pop()].name != token.name:
                ends[start] = number
                num_open[tokens[start].name] -= 1
            num_open[token.name] -= 1
            partners[start], partners[number] = number, start
            ends[start] = number + 1
    return partners, ends | dict.fromkeys(open_tags, len(tokens))

"""In which ways the pieces of a vocabulary spell phrases, as a graph to walk along with the tokens of a text.

A search that must not say "Hund" has to ban more than one token: the model then says "H" + "und".  Knows pieces and
strings; no tokenizer, no search.
"""

from collections.abc import Sequence

# For each node (token, node behind it), where ANYWHERE behind a token says that it completes a phrase.  A walk is
# always at ANYWHERE too, and begins at WORD_START as well.
Spellings = tuple[tuple[tuple[int, int], ...], ...]
ANYWHERE, WORD_START = 0, 1
WORD_MARK = "\u2581"  # SentencePiece's space, with which the first piece of most words begins


class Speller:
    """The pieces of one vocabulary."""

    def __init__(self, pieces: Sequence[str]) -> None:
        """Take the pieces by id, with empty strings for those that are no text."""
        self._ids = {piece: token for token, piece in enumerate(pieces) if piece}
        self._max_length = max(map(len, self._ids))
        # A word can begin behind these without the mark: `(Hund`.
        self._breaks = tuple((token, WORD_START) for piece, token in self._ids.items() if not piece[-1].isalnum())

    def spellings(self, phrases: Sequence[str]) -> Spellings:
        """Return all ways to spell the phrases with whole pieces, each in the form that its pieces have.

        A phrase of an alphabet with upper and lower case, or of digits, counts where a word begins, any other
        anywhere.  The end of the phrase may be followed by more of the same word.
        """
        nodes: list[set[tuple[int, int]]] = [set(self._breaks), set()]
        for phrase in phrases:
            text = WORD_MARK + phrase.strip().replace(" ", WORD_MARK)
            inner = range(len(nodes), len(nodes) + len(text) - 1)
            nodes += [set() for _ in inner]
            by_offset = [ANYWHERE, *inner, ANYWHERE]
            for offset in range(len(text)):
                starts = {by_offset[offset]}
                if offset == 1:  # without the mark
                    starts.add(WORD_START if _begins_word(text[1]) else ANYWHERE)
                for token, end in self._pieces_at(text, offset):
                    for node in starts:
                        nodes[node].add((token, by_offset[end]))
        return tuple(tuple(sorted(edges)) for edges in nodes)

    def _pieces_at(self, text: str, begin: int) -> list[tuple[int, int]]:
        """Return the pieces that stand in the text from an offset on: id, and offset behind."""
        ends = range(begin + 1, min(begin + self._max_length, len(text)) + 1)
        return [(self._ids[text[begin:end]], end) for end in ends if text[begin:end] in self._ids]


def _begins_word(character: str) -> bool:
    """Return whether a word with this character first is set apart from letters before it."""
    return character.isdecimal() or character.lower() != character.upper()

"""What takes part in the race, as the regimes see it: sentences in, answers out.

Every contestant gets the same records, prepared outside the clock, and answers in a form of its own, which is made
comparable after the clock has stopped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

Tokens = list[int]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A source in the forms that contestants take."""

    ids: tuple[int, ...]  # ends with end-of-sentence
    pieces: list[str]  # the same, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """What is asked of a contestant; the same search for all, by the rules of protos/translation.proto."""

    beam_size: int = 4
    max_target_tokens: int = 256
    shortlist: bool = False  # look at the likely target tokens of a source only; CTranslate2 calls it vmap


class Finished(NamedTuple):
    """A streamed sentence that is done."""

    number: int
    at: float  # time.perf_counter()


class Contestant(Protocol):
    """Something that translates sentences that are all there."""

    def translate(self, sentences: Sequence[Sentence]) -> list[Any]:
        """An answer to each sentence, in their order."""
        ...

    def tokens(self, answer: Any) -> Tokens:
        """The best hypothesis of an answer, without end-of-sentence."""
        ...

    def close(self) -> None:
        """Give back processes and threads."""
        ...


class Streaming(Protocol):
    """Something that translates sentences as they come; called from one thread."""

    def submit(self, number: int, sentence: Sentence) -> None:
        """Take a sentence; does not wait."""
        ...

    def finished(self, timeout_s: float) -> list[Finished]:
        """What got done since the last call; waits for at least one, but not longer than the timeout."""
        ...

    def close(self) -> None:
        """Give back processes and threads."""
        ...

"""The tokens of a foreign model by id, and which of them no text may become.

Knows strings and ids; neither how text becomes tokens nor what a model does with them.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from model.spelling import Speller

# Tokens that tell a model what to do: of sentences, and of languages, as >>de<< (OPUS-MT) or __de__ (M2M100).
_CONTROLS = frozenset({"<s>", "</s>", "<unk>", "<pad>", "<blank>", "<mask>"})
_LANGUAGE = re.compile(r">>[^<>]+<<|__[a-z]{2,3}(?:_[A-Za-z]+)?__")


class Vocabulary:
    """Tokens by id; of equal tokens, the first has the id."""

    def __init__(self, tokens: Sequence[str], *, unknown: str, controls: Iterable[str] = ()) -> None:
        """Take the tokens.

        Args:
            tokens: by id.
            unknown: the token of what is no other; one of `tokens`.
            controls: further tokens that no text becomes.

        Raises:
            ValueError: the unknown token is none of the tokens.
        """
        self.tokens = list(tokens)
        self._ids: dict[str, int] = {}
        for token, name in enumerate(self.tokens):
            self._ids.setdefault(name, token)
        self.unknown_id = self.id(unknown)
        self._controls = {*_CONTROLS, *controls, unknown}
        self._speller: Speller | None = None  # until a phrase is spelled

    @classmethod
    def load(cls, path: Path, *, unknown: str, controls: Iterable[str] = ()) -> Self:
        """Read a JSON list of tokens.

        Raises:
            ValueError: the file is missing or something else.
        """
        if not path.is_file():
            raise ValueError(f"vocabulary {path} does not exist")
        try:
            tokens = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"vocabulary {path} is no JSON: {error}") from error
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise ValueError(f"vocabulary {path} is no list of tokens")
        try:
            return cls(tokens, unknown=unknown, controls=controls)
        except ValueError as error:
            raise ValueError(f"vocabulary {path}: {error}") from error

    def __len__(self) -> int:
        return len(self.tokens)

    def id(self, token: str) -> int:
        """Return the id of a token.

        Raises:
            ValueError: there is no such token.
        """
        if token not in self._ids:
            raise ValueError(f"there is no token {token!r} among {len(self.tokens)}")
        return self._ids[token]

    def text_ids(self, tokens: Iterable[str]) -> list[int]:
        """Return the ids of tokens that come from text: what looks like a control token is unknown."""
        return [self.unknown_id if self.is_control(name) else self._ids.get(name, self.unknown_id) for name in tokens]

    def is_control(self, token: str) -> bool:
        """Return whether the token is no text."""
        return token in self._controls or _LANGUAGE.fullmatch(token) is not None

    def speller(self, mark: str) -> Speller:
        """Return what spells phrases with the tokens that are text, each behind the mark."""
        if self._speller is None:
            self._speller = Speller(["" if self.is_control(name) else mark + name for name in self.tokens])
        return self._speller

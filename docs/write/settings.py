"""Writes docs/configuration.md, the page of all settings.

    python -m docs.write.settings > docs/configuration.md

The meaning of a setting is the comment beside or above it in service/config.py.  A test compares the document with
what this module prints.
"""

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from service import config
from service.cli.serve import FLAGS
from service.config import ENV_PREFIX, NEVER, ServerConfig, allowed_bounds, may_be_never

_INTRODUCTION = """\
# Settings

Written by `python -m docs.write.settings` from `service/config.py`; change the code, not this file.

A setting comes from a flag, the environment, a TOML file (`--config FILE` or `DRAGOMAN_CONFIG`) or its default, in
this order. `limits.max_texts`, for example:

    dragoman serve --set limits.max_texts=64
    DRAGOMAN_LIMITS__MAX_TEXTS=64 dragoman serve

In the file:

    [limits]
    max_texts = 64

A wrong name or value ends the start with exit code 2 and a line that names it. "Up to" means more than 0. Look before
you start:

    dragoman serve --config dragoman.toml --print-config     # every value, and where it comes from
    dragoman serve --config dragoman.toml --check-config     # also checks models, certificates and keys
"""

_TYPES = {int: "integer", float: "number", bool: "true or false", str: "text", Path: "path"}
_HEAD = "| setting | values | default | meaning |\n| --- | --- | --- | --- |"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the page."""

    dotted: str  # the name that `--set` takes
    variable: str  # of the environment
    values: str
    default: str
    meaning: str


def settings() -> Iterator[Setting]:
    """Yield every setting, in the order of the code."""
    meanings = _meanings()
    for group, kind in get_type_hints(ServerConfig).items():
        hints = get_type_hints(kind, include_extras=True)
        for item in fields(kind):
            bounds, word = allowed_bounds(group, item.name), may_be_never(group, item.name)
            types = [_type_name(part) for part in _parts(hints[item.name]) if part is not NoneType]
            yield Setting(
                dotted=f"{group}.{item.name}",
                variable=f"{ENV_PREFIX}{group}__{item.name}".upper(),
                values=", ".join([_range(" or ".join(types), bounds), *([f"`{NEVER}`"] if word else [])]),
                default=f"`{NEVER}`" if word and item.default is None else _default(item),
                meaning=meanings.get((kind.__name__, item.name), ""),
            )


def page() -> str:
    """Return the document."""
    rows = list(settings())
    flags = {dotted: f" `--{flag.replace('_', '-')}`" for flag, dotted in FLAGS.items()}
    parts = [_INTRODUCTION]
    for group, kind in get_type_hints(ServerConfig).items():
        lines = []
        for row in rows:
            if row.dotted.startswith(f"{group}."):
                names = f"`{row.dotted}`{flags.get(row.dotted, '')}"
                cells = (names, row.values, row.default, row.meaning)
                lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        parts.append("\n".join([f"## {group}\n", f"{inspect.getdoc(kind)}\n", _HEAD, *lines, ""]))
    return "\n".join(parts)


def _range(kind: str, bounds: list[str]) -> str:
    """`integer`, `["at least 1", "at most 64"]` -> `integer, 1 - 64`."""
    if not bounds:
        return kind
    low, high = (bound.rpartition(" ")[2] for bound in bounds)
    return f"{kind}, up to {high}" if bounds[0].startswith("more") else f"{kind}, {low} - {high}"


def _parts(hint: object) -> tuple[object, ...]:
    """`Annotated[int, ...] | None` -> `(int, NoneType)`."""
    if get_origin(hint) is Annotated:
        return _parts(get_args(hint)[0])
    if get_origin(hint) in {Union, UnionType}:
        return tuple(part for arm in get_args(hint) for part in _parts(arm))
    return (hint,)


def _type_name(part: object) -> str:
    if get_origin(part) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(part))
    return _TYPES[part]  # type: ignore[index]  # a KeyError names the type that has no word yet


def _default(item: Field[Any]) -> str:
    match item.default:
        case None:
            return "not set"
        case "":
            return "empty"
        case str(text):
            return f"`{text}`"
        case number:
            return f"{number:g}" if isinstance(number, float) else str(number).lower()


def _meanings() -> dict[tuple[str, str], str]:
    """Return the comments of each class's fields, by class and field: the one beside it, then those above it."""
    source = inspect.getsource(config)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token for token in tokens if token.type == tokenize.COMMENT}
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    return {
        (owner.name, item.target.id): _meaning(comments, item.lineno)
        for owner in classes
        for item in owner.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }


def _meaning(comments: Mapping[int, tokenize.TokenInfo], line: int) -> str:
    first = line
    while (comment := comments.get(first - 1)) is not None and comment.line.lstrip().startswith("#"):
        first -= 1
    beside, above = (
        " ".join(comments[number].string.lstrip("# ") for number in numbers if number in comments)
        for numbers in ([line], range(first, line))
    )
    return re.sub(r"\bNone\b", "not set", ". ".join(" ".join(part.split()) for part in (beside, above) if part))


if __name__ == "__main__":
    print(page(), end="")

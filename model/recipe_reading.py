"""A table of TOML or JSON -> frozen dataclasses, every key and type checked.

Knows fields that are numbers, text, enumerations, tuples, optional, or dataclasses themselves; no recipe.
"""

from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin

T = TypeVar("T")

_WANTED = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def build(kind: type[T], values: object, where: str = "") -> T:
    """A dataclass from a table, nested tables included.

    Args:
        where: the table's own key, for messages; empty at the top.

    Raises:
        ValueError: a key is unknown or missing, a value has the wrong type, or the dataclass refuses it.
    """
    if not isinstance(values, dict):
        raise ValueError(f"{where or 'all of it'} is {values!r}, it must be a table")  # noqa: TRY004  # all of it is one kind of mistake
    entries = {entry.name: entry for entry in fields(kind)}  # type: ignore[arg-type]  # T is a dataclass
    for key in values:
        if key not in entries:
            raise ValueError(f"unknown key {key!r} for {kind.__name__}; known are {', '.join(entries)}")
    prefix = f"{where}." if where else ""
    for key, entry in entries.items():
        if key not in values and entry.default is MISSING and entry.default_factory is MISSING:
            raise ValueError(f"{prefix}{key} is missing")
    return kind(**{key: _convert(entries[key].type, value, f"{prefix}{key}") for key, value in values.items()})


def _convert(kind: Any, value: Any, key: str) -> Any:
    if isinstance(kind, UnionType):  # of one type and None
        [inner] = [one for one in get_args(kind) if one is not NoneType]
        return None if value is None else _convert(inner, value, key)
    if get_origin(kind) is tuple:
        return _tuple(get_args(kind), value, key)
    if isinstance(kind, type) and is_dataclass(kind):
        return build(kind, value, key)
    if issubclass(kind, StrEnum):
        return _member(kind, value, key)
    return _scalar(kind, value, key)


def _tuple(kinds: tuple[Any, ...], value: Any, key: str) -> tuple[Any, ...]:
    """Of any length where the kinds end with an ellipsis, else of theirs."""
    if not isinstance(value, list):
        raise ValueError(f"{key} is {value!r}, it must be a list")  # noqa: TRY004
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(value)
    if len(value) != len(kinds):
        raise ValueError(f"{key} has {len(value)} entries, it must have {len(kinds)}")
    return tuple(
        _convert(kind, entry, f"{key}[{index}]") for index, (kind, entry) in enumerate(zip(kinds, value, strict=True))
    )


def _member(kind: type[StrEnum], value: Any, key: str) -> StrEnum:
    accepted = [str(member) for member in kind]
    if value not in accepted:
        raise ValueError(f"{key} is {value!r}, accepted are {' and '.join(map(repr, accepted))}")
    return kind(value)


def _scalar(kind: Any, value: Any, key: str) -> Any:
    """The value in its own type; a whole number is a number too, but `true` is neither."""
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise ValueError(f"{key} is {value!r}, it must be {_WANTED[kind]}")
    return kind(value)

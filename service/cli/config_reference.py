"""docs/configuration.md, written from the settings in service/config.py and the flags of `dragoman serve`.

    python -m service.cli.config_reference > docs/configuration.md

What a setting means is the comment beside or above it. A test compares the file with what this prints.
"""

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import Field, dataclass, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from typer.main import get_command

from service import config
from service.cli import serve_command
from service.cli.app import app
from service.config import ENV_PREFIX, NEVER, ServerConfig, allowed_bounds, may_be_never

_INTRODUCTION = """\
# Settings

Every setting of `dragoman serve`. Written by `python -m service.cli.config_reference` from `service/config.py`;
change the code, not this file.

Sources, strongest first: flags (`--set GROUP.NAME=VALUE` for a setting that has none of its own), the environment, a
TOML file (`--config FILE`, else the one that `DRAGOMAN_CONFIG` names), the default. In the file each group is a table:

    [limits]
    max_texts = 64

An unknown setting or a value out of range ends the start with exit code 2 and one line that names it. In the
environment, a name with `__` is a setting, and one that begins with a group, as in `DRAGOMAN_LIMITS_MAX_TEXTS`, is
meant for one; others, like `DRAGOMAN_API_KEY` of clients and `DRAGOMAN_SERVICE_HOST` of Kubernetes, are not looked at.

    dragoman serve --config dragoman.toml --print-config     # every value, and where it comes from
    dragoman serve --config dragoman.toml --check-config     # also looks at models, certificates and keys
"""

_TYPES = {int: "integer", float: "number", bool: "true or false", str: "text", Path: "path"}
_HEAD = "| setting | environment, flag | values | default | meaning |\n| --- | --- | --- | --- | --- |"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the page."""

    group: str
    name: str
    flag: str  # "" where only --set reaches it
    values: str
    default: str
    meaning: str

    @property
    def dotted(self) -> str:
        """As `--set` takes it."""
        return f"{self.group}.{self.name}"

    @property
    def variable(self) -> str:
        """The environment's name for it."""
        return f"{ENV_PREFIX}{self.group}__{self.name}".upper()


def settings() -> Iterator[Setting]:
    """Every setting, in the order of the code."""
    flags, meanings = flags_of_settings(), _meanings()
    for group, kind in get_type_hints(ServerConfig).items():
        hints = get_type_hints(kind, include_extras=True)
        for item in fields(kind):
            bounds, word = allowed_bounds(group, item.name), may_be_never(group, item.name)
            yield Setting(
                group=group,
                name=item.name,
                flag=flags.get(f"{group}.{item.name}", ""),
                values=_values(hints[item.name], [*bounds, f"or `{NEVER}`"] if word else bounds),
                default=f"`{NEVER}`" if word and item.default is None else _default(item),
                meaning=meanings.get((kind.__name__, item.name), ""),
            )


def flags_of_settings() -> dict[str, str]:
    """The flag of each setting that has one, by dotted name: read from the table in `serve`."""
    options = {option.name: _flags(option) for option in _serve_options()}
    tables = [
        node for node in ast.walk(ast.parse(inspect.getsource(serve_command.serve))) if isinstance(node, ast.Dict)
    ]
    return {
        str(ast.literal_eval(key)): options[name.id]
        for table in tables
        for key, value in zip(table.keys, table.values, strict=True)
        if isinstance(key, ast.Constant)
        for name in ast.walk(value)
        if isinstance(name, ast.Name) and name.id in options
    }


def page() -> str:
    """The document."""
    rows = list(settings())
    parts = [_INTRODUCTION]
    for group, kind in get_type_hints(ServerConfig).items():
        lines = [_row(setting) for setting in rows if setting.group == group]
        parts.append("\n".join([f"## {group}\n", f"{inspect.getdoc(kind)}\n", _HEAD, *lines, ""]))
    return "\n".join(parts)


def _row(setting: Setting) -> str:
    names = f"`{setting.variable}`" + (f" `{setting.flag}`" if setting.flag else "")
    cells = (f"`{setting.dotted}`", names, setting.values, setting.default, setting.meaning)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _serve_options() -> list[Any]:
    commands: Any = get_command(app)  # typer's own types say nothing of groups
    return list(commands.commands["serve"].params)


def _flags(option: Any) -> str:
    """The long one; of a switch also the one that switches off: `--http/--no-http`."""
    return "/".join(max(names, key=len) for names in (option.opts, option.secondary_opts) if names)


def _values(hint: object, bounds: list[str]) -> str:
    names = [_type_name(part) for part in _parts(hint) if part is not NoneType]
    return ", ".join([" or ".join(names), *bounds])


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
    """The comments of each class's fields, by class and field: the one beside it, then those above it."""
    source = inspect.getsource(config)
    comments = _comments(source)
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    return {
        (owner.name, item.target.id): _joined(comments, item.lineno)
        for owner in classes
        for item in owner.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }


@dataclass(frozen=True, slots=True)
class _Comment:
    text: str
    alone: bool  # nothing else is on its line


def _comments(source: str) -> dict[int, _Comment]:
    """By line."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: _Comment(token.string.lstrip("# "), token.line.lstrip().startswith("#"))
        for token in tokens
        if token.type == tokenize.COMMENT
    }


def _joined(comments: dict[int, _Comment], line: int) -> str:
    first = line
    while (comment := comments.get(first - 1)) is not None and comment.alone:
        first -= 1
    above = " ".join(comments[number].text for number in range(first, line))
    beside = comments[line].text if line in comments else ""
    return re.sub(r"\bNone\b", "not set", ". ".join(" ".join(part.split()) for part in (beside, above) if part))


if __name__ == "__main__":
    print(page(), end="")

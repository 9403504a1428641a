"""Settings as TOML that `--config` takes again, with the source of each value behind it."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from service.config import NEVER, ServerConfig, may_be_never


def as_toml(config: ServerConfig, sources: Mapping[str, str]) -> str:
    """The settings, one a line; without a value they are `never`, or comments, as TOML has no word for that.

    Args:
        sources: where each value comes from, by dotted name.
    """
    return "\n\n".join(_table(config, group.name, sources) for group in fields(config))


def _table(config: ServerConfig, group: str, sources: Mapping[str, str]) -> str:
    settings = getattr(config, group)
    lines = []
    for item in fields(settings):
        value = getattr(settings, item.name)
        written = NEVER if value is None and may_be_never(group, item.name) else value
        lines.append(_line(item.name, written, sources[f"{group}.{item.name}"]))
    return "\n".join([f"[{group}]", *lines])


def _line(name: str, value: object, source: str) -> str:
    line = f"# {name} is not set" if value is None else f"{name} = {_literal(value)}"
    return f"{line:50}  # {source}"


def _literal(value: object) -> str:
    # JSON's numbers, booleans and strings are TOML's too.
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)

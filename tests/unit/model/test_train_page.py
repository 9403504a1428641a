"""docs/train.md has every key of a recipe, with its default."""

import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from model.recipe import CorpusConfig, Languages, Recipe

PAGE = Path(__file__).resolve().parents[3] / "docs" / "train.md"
ROW = re.compile(r"^\| `([a-z._]+)` \| ([^|]+) \| [^|]+ \|$", re.MULTILINE)


def written(values: dict[str, Any], table: str = "") -> Iterator[tuple[str, str]]:
    """Each key with its default as the page writes it."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from written(value, f"{key}.")
        else:
            entries = value if isinstance(value, (list, tuple)) else [value]
            yield f"{table}{key}", ", ".join(str(entry).lower() for entry in entries)


@pytest.mark.skipif(not PAGE.exists(), reason="not in a checkout")
def test_the_page_has_every_key_of_a_recipe_with_its_default():
    smallest = asdict(Recipe(name="needed", languages=Languages(source="needed", target="needed"), corpora=()))
    corpus = asdict(CorpusConfig(name="needed")) | {"max_pairs": "all"}

    assert dict(ROW.findall(PAGE.read_text(encoding="utf-8"))) == dict(written(smallest | {"corpora": corpus}))

"""Garbage is looked for where it is likely."""

import gc
from collections.abc import Iterator

import pytest

from service.server.process import spare_what_is_loaded


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class Node:
    """Something that can be part of a cycle."""


def test_what_is_loaded_is_looked_at_no_more_and_later_garbage_less_often():
    loaded = Node()
    young, middle, full = gc.get_threshold()

    spare_what_is_loaded()
    later = Node()
    later.itself = later  # type: ignore[attr-defined]
    del later

    assert not any(item is loaded for item in gc.get_objects())
    assert gc.collect() >= 1
    assert gc.get_threshold()[:2] == (young, middle)
    assert gc.get_threshold()[2] > full

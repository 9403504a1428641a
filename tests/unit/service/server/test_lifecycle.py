"""Garbage is looked for where it is likely."""

import gc
from collections.abc import Iterator

import pytest

from service.server.lifecycle import spare_what_is_loaded


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class Node:
    """Something that can be part of a cycle."""


def test_what_is_loaded_is_looked_at_no_more():
    node = Node()

    spare_what_is_loaded()

    assert not any(item is node for item in gc.get_objects())


def test_garbage_that_comes_later_is_found():
    spare_what_is_loaded()
    node = Node()
    node.itself = node  # type: ignore[attr-defined]
    del node

    assert gc.collect() >= 1


def test_collections_of_everything_are_rarer_and_the_others_are_not():
    young, middle, full = gc.get_threshold()

    spare_what_is_loaded()

    assert gc.get_threshold()[:2] == (young, middle)
    assert gc.get_threshold()[2] > full

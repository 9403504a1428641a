"""Classes of work on the wire and back."""

import pytest

from protos import translation_pb2 as pb
from service.grpc import priorities
from service.queue.callers import Priority


@pytest.mark.parametrize("priority", [None, *Priority])
def test_every_class_comes_back_from_the_wire(priority):
    assert priorities.from_wire(priorities.to_wire(priority)) is priority


def test_class_of_a_later_version_is_none():
    assert priorities.from_wire(99) is None


def test_every_class_of_the_contract_is_known():
    assert {priorities.from_wire(number) for number in pb.Priority.values()} == {None, *Priority}
    assert [priorities.named(name) for name in ("interactive", "batch")] == list(Priority)

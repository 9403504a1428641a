"""What a server says of itself while it starts, serves, lacks engines and drains."""

import pytest

from service.server.parts import Readiness


class Engines:
    """Says whether every model has an engine."""

    are_there = True

    def __call__(self) -> bool:
        return self.are_there


@pytest.fixture
def engines() -> Engines:
    return Engines()


@pytest.fixture
def serving(engines: Engines) -> Readiness:
    readiness = Readiness(engines, 10.0)
    readiness.is_accepting = True
    return readiness


def test_state_is_one_word(engines):
    readiness = Readiness(engines)
    told = [(readiness.state, readiness.is_ready)]
    readiness.is_accepting = True
    told.append((readiness.state, readiness.is_ready))
    engines.are_there = False
    told.append((readiness.state, readiness.is_ready))
    readiness.drain()
    told.append((readiness.state, readiness.is_ready))

    assert told == [("starting", False), ("serving", True), ("degraded", False), ("draining", False)]


def test_process_with_a_model_without_engine_is_alive_for_the_time_that_was_set(serving, engines):
    assert serving.observe(0.0)
    engines.are_there = False
    for now in (100.0, 105.0, 109.0):
        assert not serving.observe(now)

    assert serving.is_alive(110.0)
    assert not serving.is_alive(110.1)


def test_engine_that_comes_back_starts_the_clock_anew(serving, engines):
    for now, engines.are_there in ((0.0, False), (9.0, True), (11.0, False)):
        serving.observe(now)

    assert serving.is_alive(20.0)


@pytest.mark.parametrize(("limit_s", "is_accepting"), [(10.0, False), (None, True)])
def test_process_that_drains_or_has_no_limit_is_alive_without_engines(engines, limit_s, is_accepting):
    engines.are_there = False
    readiness = Readiness(engines, limit_s)
    readiness.is_accepting = is_accepting
    readiness.observe(0.0)

    assert readiness.is_alive(1e6)

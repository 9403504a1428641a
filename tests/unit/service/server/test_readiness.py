"""What /healthz says of a process in which some model has no engine."""

import pytest

from service.server.readiness import Readiness


@pytest.fixture
def serving() -> Readiness:
    readiness = Readiness(10.0)
    readiness.is_accepting = True
    return readiness


def test_process_with_engines_of_every_model_is_alive(serving):
    serving.observe(0.0, is_ready=True)

    assert serving.is_alive(1e6)


def test_process_with_a_model_without_engine_is_alive_for_the_time_that_was_set(serving):
    for now in (100.0, 105.0, 109.0):
        serving.observe(now, is_ready=False)

    assert serving.is_alive(110.0)
    assert not serving.is_alive(110.1)


def test_engine_that_comes_back_starts_the_clock_anew(serving):
    serving.observe(0.0, is_ready=False)
    serving.observe(9.0, is_ready=True)
    serving.observe(11.0, is_ready=False)

    assert serving.is_alive(20.0)


def test_draining_process_is_alive(serving):
    serving.observe(0.0, is_ready=False)
    serving.is_accepting = False

    assert serving.is_alive(1e6)


def test_none_is_for_ever():
    readiness = Readiness(None)
    readiness.is_accepting = True
    readiness.observe(0.0, is_ready=False)

    assert readiness.is_alive(1e6)

"""How many frontends there are, and a limit of the machine that is said at the start."""

import json
import resource

import pytest

from service.config import EngineConfig, ListenConfig, ServerConfig
from service.server import process
from service.server.process import use_limits
from tests.fakes.logs import log

__all__ = ["log"]


@pytest.fixture
def limits(monkeypatch):
    """The limits of a process by their number."""
    limits = {resource.RLIMIT_NOFILE: (1_024, 1_048_576), resource.RLIMIT_AS: (resource.RLIM_INFINITY,) * 2}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    return limits


@pytest.mark.parametrize(
    ("before", "after"),
    [((1_024, 1_048_576), (65_536, 1_048_576)), ((1_024, 4_096), (4_096, 4_096)), ((100_000,) * 2, (100_000,) * 2)],
)
def test_as_many_files_may_be_open_as_the_hard_limit_allows(limits, log, before, after):
    limits[resource.RLIMIT_NOFILE] = before

    use_limits()

    assert limits[resource.RLIMIT_NOFILE] == after
    assert log.getvalue() == ""


@pytest.mark.parametrize(
    ("limit", "value", "event"),
    [
        (resource.RLIMIT_AS, 800 << 20, {"event": "address_space_limited", "limit_mb": 800}),
        (resource.RLIMIT_NOFILE, 256, {"event": "open_files_limited", "limit": 256}),
    ],
)
def test_limits_that_are_too_low_are_said_at_the_start(limits, log, limit, value, event):
    limits[limit] = (value, value)

    use_limits()

    assert event.items() <= json.loads(log.getvalue()).items()


@pytest.mark.parametrize(
    ("device", "cpus", "wanted"),
    [("cpu", 2, 1), ("cpu", 16, 2), ("auto", 64, 4), ("cuda", 2, 1), ("cuda", 16, 5), ("cuda", 64, 8)],
)
def test_a_gpu_gets_more_frontends_than_cpus_do(monkeypatch, device, cpus, wanted):
    monkeypatch.setattr(process, "available_threads", lambda: cpus)

    assert process.num_frontends(ServerConfig(engine=EngineConfig(device=device))) == wanted
    assert process.num_frontends(ServerConfig(engine=EngineConfig(device=device), listen=ListenConfig(edges=3))) == 3

"""How the settings decide with which engines a bundle runs."""

from pathlib import Path

import pytest

from model.bundle import Bundle, BundleError, default_bundle_dir
from service.config import EngineConfig, LifecycleConfig, LimitsConfig, ServerConfig
from service.engine.cuda import runner
from service.engine.wire import SchedulerConfig
from service.engine.worker import create_runner
from service.models.repository import BundleCandidate, check_in_engine
from service.server import model_hosting
from service.server.model_hosting import ModelParts, engine_spec, num_engines, runtime_for
from tests.fakes.echo_bundle import write_echo_bundle
from tests.fakes.native_engine import needs_native_engine


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return Bundle.load(write_echo_bundle(tmp_path / "echo" / "1.2.3"))


@pytest.fixture
def cpus(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    num_cpus: int = request.param
    monkeypatch.setattr(model_hosting, "available_threads", lambda: num_cpus)
    return num_cpus


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"precision": "fp32"}, {"precision": "fp32"}),
        ({"threads": 3}, {"num_threads": 3}),
        ({"max_source_tokens": 99}, {"scheduler": SchedulerConfig(max_source_tokens=99)}),
        ({"num_engines": 1}, {"shared_weights": False}),
        ({"num_engines": 2, "shared_weights": False}, {"shared_weights": False}),
    ],
)
def test_given_setting_reaches_the_engine(bundle, settings, expected):
    made = engine_spec(bundle, ServerConfig(engine=EngineConfig(**settings)))

    assert {name: getattr(made, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("cpus", "settings", "expected"),
    [
        (1, {}, (1, 1)),
        (64, {}, (16, 4)),
        (4, {"threads": 2}, (2, 2)),
        (2, {"threads": 4}, (1, 4)),
        (8, {"num_engines": 3}, (3, 2)),
    ],
    indirect=["cpus"],
)
def test_engines_share_the_allowed_cpus_and_every_cpu_has_work_by_default(bundle, cpus, settings, expected):
    config = EngineConfig(**settings)

    assert (num_engines(config), engine_spec(bundle, ServerConfig(engine=config)).num_threads) == expected


@needs_native_engine
@pytest.mark.parametrize(
    ("cpus", "settings", "expected"),
    [
        (64, {}, ("native", 64, 1)),
        (8, {"num_engines": 3}, ("native", 3, 1)),
        (8, {"threads": 2}, ("onnxruntime", 4, 2)),
    ],
    indirect=["cpus"],
)
def test_every_cpu_has_a_native_engine_of_one_thread(cpus, settings, expected):
    bundle, config = Bundle.load(default_bundle_dir()), EngineConfig(**settings)

    runtime = runtime_for(bundle, config, "cpu").runtime
    spec = engine_spec(bundle, ServerConfig(engine=config))

    assert (runtime, num_engines(config, "cpu", runtime), spec.num_threads) == expected


def test_gpu_has_one_engine_by_default_which_shares_no_weights(bundle):
    assert num_engines(EngineConfig(), "cuda") == 1
    assert not engine_spec(bundle, ServerConfig(engine=EngineConfig(num_engines=2)), "cuda").shared_weights


@pytest.mark.parametrize(("silence_s", "heartbeat_s"), [(10.0, 1.0), (60.0, 1.0), (2.0, 0.25), (0.4, 0.05)])
def test_idle_engine_says_often_enough_that_it_lives(bundle, silence_s, heartbeat_s):
    config = ServerConfig(lifecycle=LifecycleConfig(engine_silence_s=silence_s))

    assert engine_spec(bundle, config).heartbeat_interval_s == heartbeat_s


def test_engine_refuses_a_bundle_that_was_replaced_since_it_was_checked(bundle, monkeypatch):
    """Also between the check in the engine process and the loading of the graphs."""
    monkeypatch.setattr(runner, "require_cuda", lambda: None)
    spec = engine_spec(bundle, ServerConfig())
    check_in_engine(spec)

    write_echo_bundle(bundle.directory, version="2")

    for load in (check_in_engine, create_runner, runner.CudaRunner.open):
        with pytest.raises(BundleError, match="holds another bundle than when this one was checked"):
            load(spec)


def test_host_offers_its_model_as_the_settings_say(bundle):
    parts = ModelParts(ServerConfig(limits=LimitsConfig(max_beam_size=1)))

    host = parts.make_model(BundleCandidate(directory=bundle.directory), bundle)

    assert host.info.max_beam_size == 1

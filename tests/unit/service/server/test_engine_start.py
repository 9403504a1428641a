"""What the settings become for engines and for gRPC."""

from pathlib import Path

import pytest

from service.config import EngineConfig, LifecycleConfig, LimitsConfig, ListenConfig, ServerConfig
from service.engine.scheduler import SchedulerConfig
from service.engine.spec import EngineSpec
from service.grpc.listening import grpc_options
from service.server.engine_start import dispatch_config, engine_spec, heartbeat_interval_s, num_engines

BUNDLE = Path("/models/en-de")


def spec(**settings) -> EngineSpec:
    return engine_spec(BUNDLE, EngineConfig(**settings))


def test_settings_that_are_not_given_take_the_engine_s_defaults(monkeypatch):
    monkeypatch.setattr("service.server.engine_start.available_threads", lambda: 4)

    assert spec() == EngineSpec(bundle_dir=BUNDLE, num_threads=1, shared_weights=True)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"precision": "fp32"}, {"precision": "fp32"}),
        ({"threads": 3}, {"num_threads": 3}),
        ({"max_rows": 7}, {"scheduler": SchedulerConfig(max_rows=7)}),
        ({"max_source_tokens": 99}, {"scheduler": SchedulerConfig(max_source_tokens=99)}),
        ({"runner_factory": "a.b:c"}, {"runner_factory": "a.b:c"}),
    ],
)
def test_given_setting_reaches_the_engine(settings, expected):
    made = spec(**settings)

    assert {name: getattr(made, name) for name in expected} == expected
    assert made != spec()


@pytest.mark.parametrize(("cpus", "num_engines", "threads"), [(8, 2, 4), (8, 3, 2), (2, 4, 1), (1, 1, 1)])
def test_engines_share_the_cpus_that_are_allowed(monkeypatch, cpus, num_engines, threads):
    monkeypatch.setattr("service.server.engine_start.available_threads", lambda: cpus)

    assert spec(num_engines=num_engines).num_threads == threads


@pytest.mark.parametrize(
    ("cpus", "settings", "expected"),
    [(1, {}, (1, 1)), (4, {}, (4, 1)), (64, {}, (16, 4)), (4, {"threads": 2}, (2, 2)), (2, {"threads": 4}, (1, 4))],
)
def test_every_allowed_cpu_has_work_by_default(monkeypatch, cpus, settings, expected):
    monkeypatch.setattr("service.server.engine_start.available_threads", lambda: cpus)
    config = EngineConfig(**settings)

    assert (num_engines(config), engine_spec(BUNDLE, config).num_threads) == expected


@pytest.mark.parametrize(
    ("device", "settings", "shared"),
    [
        ("cpu", {"num_engines": 2}, True),
        ("cpu", {"num_engines": 1}, False),
        ("cpu", {"num_engines": 2, "shared_weights": False}, False),
        ("cuda", {"num_engines": 2}, False),
    ],
)
def test_several_engines_on_a_cpu_share_their_weights_unless_told_otherwise(device, settings, shared):
    assert engine_spec(BUNDLE, EngineConfig(**settings), device).shared_weights is shared


def test_number_of_engines_and_their_time_to_start_reach_the_dispatcher():
    config = ServerConfig(engine=EngineConfig(num_engines=3), lifecycle=LifecycleConfig(start_timeout_s=7.5))

    made = dispatch_config(config)

    assert (made.num_engines, made.start_timeout_s) == (3, 7.5)


@pytest.mark.parametrize(("silence_s", "heartbeat_s"), [(10.0, 1.0), (60.0, 1.0), (2.0, 0.25), (0.4, 0.05)])
def test_an_idle_engine_says_often_enough_that_it_lives(silence_s, heartbeat_s):
    config = ServerConfig(lifecycle=LifecycleConfig(engine_silence_s=silence_s))

    assert heartbeat_interval_s(config) == heartbeat_s


@pytest.mark.parametrize(
    ("config", "option", "value"),
    [
        (ServerConfig(), "grpc.so_reuseport", 0),
        (ServerConfig(limits=LimitsConfig(max_message_bytes=5_000)), "grpc.max_receive_message_length", 5_000),
        (ServerConfig(listen=ListenConfig(keepalive_time_s=1.5)), "grpc.keepalive_time_ms", 1_500),
        (ServerConfig(listen=ListenConfig(keepalive_timeout_s=2.5)), "grpc.keepalive_timeout_ms", 2_500),
        (ServerConfig(listen=ListenConfig(max_connection_idle_s=60.0)), "grpc.max_connection_idle_ms", 60_000),
        (ServerConfig(listen=ListenConfig(keepalive_timeout_s=2.5)), "grpc.http2.ping_timeout_ms", 2_500),
        (ServerConfig(listen=ListenConfig(keepalive_timeout_s=2.5)), "grpc.server_handshake_timeout_ms", 2_500),
        (ServerConfig(listen=ListenConfig(max_metadata_bytes=2_000)), "grpc.absolute_max_metadata_size", 2_000),
        (ServerConfig(listen=ListenConfig(max_streams_per_connection=3)), "grpc.max_concurrent_streams", 3),
        (ServerConfig(listen=ListenConfig(max_connection_age_s=9.0)), "grpc.max_connection_age_ms", 9_000),
        (
            ServerConfig(listen=ListenConfig(max_connection_age_s=9.0), limits=LimitsConfig(max_stream_seconds=70.0)),
            "grpc.max_connection_age_grace_ms",  # the longest call of all
            70_000,
        ),
    ],
)
def test_setting_reaches_grpc(config, option, value):
    assert dict(grpc_options(config))[option] == value
